"""The forms of annotation tools' records, JSON objects or the cells of a row; one form a file; the form is detected."""
