"""Batches -> states: embeddings, positions, attention, blocks, the Transformer and its heads."""
