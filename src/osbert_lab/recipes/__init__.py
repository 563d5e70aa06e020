"""Recipes of the lab's families, one TOML file each; osbert finds them by the entry point group `osbert.recipes`."""
