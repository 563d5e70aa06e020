"""Predictions -> numbers: scores of a run on a data set, with intervals and comparisons."""
