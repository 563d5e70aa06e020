"""Runs the command line, as `osbert` and as `python -m osbert`."""

import signal
import sys


def main() -> int:
    """Run one command and return the exit status; see `osbert.cli.main`.

    While its modules are imported, Ctrl-C ends the process without a traceback.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # it is another one where Ctrl-C is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import cyclopts  # noqa: F401 - not above, as osbert.cli: processes that are started import this module again

    from osbert.cli import main as run

    signal.signal(signal.SIGINT, handler)
    return run()


if __name__ == "__main__":
    sys.exit(main())
