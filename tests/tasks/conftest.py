"""A tokenizer of a few words, and a writer of files."""

from task_fixtures import packer, write

__all__ = ["packer", "write"]
