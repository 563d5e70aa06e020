"""Settings and files of vectors."""
