"""osbert duplicates: texts that nearly repeat an earlier one, by their vectors."""
