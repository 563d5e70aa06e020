"""One verb a file: the only place where the rooms meet."""
