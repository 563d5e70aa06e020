"""The parts of the Transformer: attention and its kernels, blocks, embeddings, and how a batch lies in memory."""
