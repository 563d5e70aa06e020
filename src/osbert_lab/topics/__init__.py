"""Topics of texts: clusters of their vectors, with words and a page."""
