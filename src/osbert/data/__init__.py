"""Shards and records -> batches: examples, packing, corruption, collation, loaders."""
