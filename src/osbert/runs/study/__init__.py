"""Several runs compared: seeds, searches, GLUE."""
