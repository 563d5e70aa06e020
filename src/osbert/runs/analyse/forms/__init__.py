"""Forms of data that analyses read: one file each, found by its name."""
