"""The objectives of ERNIE 1.0 and 2.0 that no other family has."""
