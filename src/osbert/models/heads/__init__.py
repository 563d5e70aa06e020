"""What stands on a backbone: states in, outputs and a loss out, one file for each form."""
