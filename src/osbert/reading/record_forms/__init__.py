"""Record forms of annotation tools: JSON objects or cells of rows; one in each file; detected from the records."""
