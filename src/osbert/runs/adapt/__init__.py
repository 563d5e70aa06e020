"""Adaptation: further pretraining of an encoder on texts of a domain, while measuring what it forgets."""
