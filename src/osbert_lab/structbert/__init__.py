"""StructBERT (Wang et al. 2019): shuffled words, whose order is restored."""
