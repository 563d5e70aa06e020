"""Static word vectors: training of word2vec and GloVe on a corpus."""
