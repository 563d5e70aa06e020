"""osbert tokenizer: trains a vocabulary on text files, extends it, and shows how a text is tokenized."""
