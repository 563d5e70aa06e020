"""Recurrent models: ELMo's bidirectional language model and CoVe's translator, with their objectives."""
