"""Hugging Face folders: config.json, weights and tokenizers of the published families, in and out."""
