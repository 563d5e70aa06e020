"""The families of backbones, one file each; the file's name is the family's name."""
