"""Training rows whose labels the other rows contradict."""
