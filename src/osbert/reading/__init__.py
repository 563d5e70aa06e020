"""Any file -> text or rows: compressions, encodings, tables, columns, splits, tagged text."""
