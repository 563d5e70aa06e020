"""Static vectors of words: word2vec and GloVe, learnt from a corpus by loops of their own."""
