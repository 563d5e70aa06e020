"""The analyses of a model: one a file, loaded by its name."""
