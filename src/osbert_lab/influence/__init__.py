"""Training rows behind a prediction: the nearest ones, and those that moved its score."""
