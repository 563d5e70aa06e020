"""Sparse vectors of texts (SPLADE), weights of word pieces: reading and search."""
