"""The calls behind /v1/, one file each: its request, its answer, and its work between them."""
