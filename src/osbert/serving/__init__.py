"""A finished run at work: predictions and vectors, from Python and over HTTP."""
