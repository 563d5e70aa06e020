"""Named data sets, a few lines each on a kind; the file's name is the set's name."""
