"""A small tokenizer that knows every ASCII letter, and text to encode with it."""

from prose import prose, tokenizer

__all__ = ["prose", "tokenizer"]
