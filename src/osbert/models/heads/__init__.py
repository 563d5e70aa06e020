"""Heads of a backbone: states to outputs and a loss, one file for each form."""
