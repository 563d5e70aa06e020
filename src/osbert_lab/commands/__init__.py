"""The verbs of the lab, one per file."""
