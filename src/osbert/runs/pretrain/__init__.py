"""Pretraining: a recipe and a corpus -> a run folder with an encoder."""
