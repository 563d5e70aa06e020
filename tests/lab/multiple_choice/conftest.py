"""A tokenizer of a few words, a tiny encoder, and a writer of files."""

from reviews import encoder
from task_fixtures import packer, write

__all__ = ["encoder", "packer", "write"]
