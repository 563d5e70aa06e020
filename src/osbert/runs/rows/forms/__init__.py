"""The forms in which predicted rows are written, one file each."""
