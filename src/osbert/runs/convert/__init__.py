"""A model in another form: every tensor listed, and both forms compared before the target gets its name."""
