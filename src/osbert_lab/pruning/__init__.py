"""osbert prune: a fine-tuned run without its least important heads, or with fewer layers."""
