"""One verb per file; only here do the packages meet."""
