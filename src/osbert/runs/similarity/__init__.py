"""Vectors of texts compared with each other: search and near duplicates."""
