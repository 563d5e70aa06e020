"""The demo: the whole chain on the docstrings of an installation, its task and its report."""
