"""A finished model at work: texts in; vectors, predictions and filled masks out."""
