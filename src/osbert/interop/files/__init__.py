"""Single files of a model's folder: JSON and weights within their limits, checks of tokenizers."""
