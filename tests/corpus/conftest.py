"""A small tokenizer that knows every ASCII letter, and text to encode with it."""

from object_store import s3, server
from prose import prose, tokenizer

__all__ = ["prose", "s3", "server", "tokenizer"]
