"""A small tokenizer that knows every ASCII letter."""

from prose import tokenizer

__all__ = ["tokenizer"]
