"""Vectors on disk: their settings and files, and search."""
