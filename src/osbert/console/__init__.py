"""Code that verbs share on the command line: common options, and the printing of events and results."""
