"""Vectors of words without context: how word2vec and GloVe learn them, as arithmetic on tables."""
