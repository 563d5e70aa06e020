"""Vectors of texts compared with each other: search, its measures and hard negatives."""
