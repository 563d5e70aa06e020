"""Many vectors a text (ColBERT), one of each token that counts: comparison, reading, and an index of residuals."""
