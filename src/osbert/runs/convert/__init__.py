"""Converts a model to another form: lists every tensor, and compares both forms before the target gets its name."""
