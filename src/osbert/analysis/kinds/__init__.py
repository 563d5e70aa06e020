"""The analyses of a model: one a file, found by its name."""
