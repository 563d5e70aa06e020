"""Predictions -> numbers: scores of a run on a data set."""
