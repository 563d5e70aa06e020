"""The functions of the Python library. Each imports what it needs when it is called, so that importing osbert is
fast."""
