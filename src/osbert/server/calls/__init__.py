"""The calls behind /v1/: schemas of request and answer, and the computation by the served models."""

MOST_PIECES, MOST_BEAMS = 512, 8
"""Default limits of generation: pieces of a text, and beams."""
