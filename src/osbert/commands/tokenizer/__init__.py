"""osbert tokenizer: train a WordPiece vocabulary on text files, extend it, look at how a text is cut into pieces."""
