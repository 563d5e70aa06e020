"""Text out: pieces written one after the other, by greedy choice, sampling or beam search."""
