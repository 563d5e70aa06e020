"""The calls behind /v1/, one in each file: schemas of request and answer, and the computation."""
