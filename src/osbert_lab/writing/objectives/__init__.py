"""Objectives of models that write, each in a file named for it; entry points of `osbert.objectives` lead to them."""
