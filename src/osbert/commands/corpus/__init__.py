"""osbert corpus: text files become a corpus that pretraining reads; a corpus is shown."""
