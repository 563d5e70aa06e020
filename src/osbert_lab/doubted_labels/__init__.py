"""Training rows whose labels may be wrong: other rows contradict them, or the model never learns them."""
