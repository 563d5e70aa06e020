"""What a verb does, as functions: pretraining, fine-tuning, studies of many runs, published tables."""
