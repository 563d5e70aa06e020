"""Faster versions of torch operations for CPUs, each with the plain line that defines it."""
