"""The published families of encoders, one file each: a new one is a file with one `FAMILY`."""
