"""What a finished model has learnt, and why it answers as it does: a model and data -> numbers."""
