"""What verbs share on the command line: options that several of them have, and how events and results are printed."""
