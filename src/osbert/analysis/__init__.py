"""A finished model -> numbers: which words made a prediction, what heads attend to, what layers know."""
