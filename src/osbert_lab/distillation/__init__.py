"""Distillation: a fine-tuned run teaches a smaller encoder."""
