"""The vectors of a file: resumable, a window of texts at a time."""
