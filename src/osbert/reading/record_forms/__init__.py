"""The contract of annotation tools' records, JSON objects or cells of rows; forms enter by entry points."""
