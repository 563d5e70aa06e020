"""A tokenizer of a few words for the tasks' tests, and a writer of files."""

from task_fixtures import packer, write

__all__ = ["packer", "write"]
