"""Forms of data that analyses read; each file defines one and gives it its name."""
