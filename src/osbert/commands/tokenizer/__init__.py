"""osbert tokenizer: train a vocabulary on text files, extend it, look at how a text is cut into pieces."""
