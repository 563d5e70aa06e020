"""The command line: each verb is one file in commands/, imported only when it is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import cyclopts

import osbert
from osbert.errors import UserError

VERBS = {
    "demo": "Run the whole chain on text that this installation has: about four minutes, offline.",
    "pretrain": "Pretrain an encoder on a corpus, by a recipe.",
    "finetune": "Fine-tune an encoder on a task of your own, or a published one.",
    "evaluate": "Score a fine-tuned run on a file with labels.",
    "predict": "Predict with a fine-tuned run: one text, or a file.",
    "embed": "Write the vectors that an encoder gives your texts.",
}
GROUPS = {
    "tokenizer": (
        "Train a vocabulary, or look at how a text is cut into pieces.",
        {"train": "Train a WordPiece vocabulary on text files.", "encode": "Show a text's pieces with their offsets."},
    ),
    "corpus": (
        "Turn text files into a corpus that pretraining reads.",
        {"build": "Build a corpus from text files.", "show": "Show a corpus: its report and a sample."},
    ),
}


def application() -> cyclopts.App:
    """Return the command line as a cyclopts App; no command module is imported yet."""
    app = cyclopts.App(name="osbert", help=osbert.__doc__, version=osbert.__version__, version_flags=["--version"])
    for group, (help_text, verbs) in GROUPS.items():
        folder = cyclopts.App(name=group, help=help_text)
        for verb, about in verbs.items():
            folder.command(f"osbert.commands.{group}:{verb}", name=verb, help=about)
        app.command(folder)
    for verb, about in VERBS.items():
        app.command(f"osbert.commands.{verb}:{verb}", name=verb, help=about)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    0: done; 1: an error the user can mend; 2: wrong usage; 130: interrupted.
    """
    app = application()
    try:
        app(sys.argv[1:] if arguments is None else list(arguments), exit_on_error=True)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        sys.stderr.close()
        return 0
    except OSError as error:  # a folder that cannot be written, a full disk: the user's to mend
        print(f"error: {error.filename or 'the disk'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0
