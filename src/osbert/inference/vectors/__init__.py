"""Vectors on disk: their settings and files, search, clusters and near duplicates."""
