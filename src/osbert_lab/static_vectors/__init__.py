"""Static word vectors: word2vec and GloVe learnt from a corpus, the models of their tables, and the files of others."""
