"""osbert corpus: converts text files to a corpus for pretraining, and shows a corpus."""
