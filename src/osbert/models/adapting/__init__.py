"""Changes to a finished encoder: what is frozen, added or widened for a task."""
