"""Runs the command line as `python -m osbert`."""

import sys

from osbert.cli import main

if __name__ == "__main__":
    sys.exit(main())
