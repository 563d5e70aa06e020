"""What a fine-tuned run predicts for the rows of a file, and the forms in which that is written."""
