"""The kinds of task, one file each; the file's name is the kind's name."""
