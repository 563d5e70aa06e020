"""What a verb does, as functions that print nothing."""
