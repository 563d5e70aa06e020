"""The forms of files that are read whole: JSON arrays, workbooks, annotation tools' own; one form a file."""
