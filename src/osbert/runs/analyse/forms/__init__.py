"""Forms of data that analyses read, one in each file, which gives it its name."""
