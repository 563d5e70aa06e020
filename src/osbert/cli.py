"""The command line. Each verb is one file in commands/, imported only when it is used."""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import osbert
from osbert.console.output import OPTIONS, Output, name_packaged_models, watching
from osbert.console.verbs import CORE, OLDER, VerbPackage, group_by_purpose, verb_packages
from osbert.errors import UnknownSetting, UserError
from osbert.files import disk_full
from osbert.lock import LockWarning
from osbert.remote import explain_addresses
from osbert.runs.contract import Notice
from osbert.runs.json_lines import event_line
from osbert.terminal import guard_streams
from osbert.training.interruption import STATUS

if TYPE_CHECKING:
    import cyclopts

INSTALL = "--install-completion"

NO_MEMORY = (
    *("can't allocate memory", "not enough memory", "out of memory", "Cannot allocate memory", "bad_alloc"),
    *("failed to map segment", "can't start new thread"),
)
"""Parts of messages of torch, of the loader of libraries and of threads if memory runs out."""


def application(words: Sequence[str] = ()) -> cyclopts.App:
    """Return the command line as a cyclopts App, without importing a command module.

    Where `words` ask for the help of a verb, its settings and what every verb takes are among its options. Completion
    is of every verb, without settings.
    """
    import cyclopts  # not above: worker processes import this module again and have no use for it

    from osbert.console.arguments import CheckedApp

    app = CheckedApp(
        name="osbert",
        help=osbert.__doc__,
        version=osbert.__version__,
        version_flags=["--version"],
        group_commands=cyclopts.Group("Other", sort_key=len(CORE.purposes)),
    )
    app.register_install_completion_command(INSTALL, help="Install the completion of osbert's words in your shell.")
    name = words[0] if words else ""
    if name in CORE.verbs or name in CORE.groups:
        # Only this one: reading the entry points of other packages takes a while.
        _add_verb(app, CORE, name, words, {})
        return app
    packages = verb_packages()
    positions = _help_positions(packages)
    for package in packages:
        for name in (*package.groups, *package.verbs):
            _add_verb(app, package, name, words, positions.get(name, {}))
    # Old names work, but the help does not list them.
    for name, verb in OLDER.items():
        words_of_verb = [verb, *words[1:]] if words[:1] == [name] else ()
        app.command(_verb(CORE, (verb,), words_of_verb), name=name, show=False)
    return app


def _add_verb(
    app: cyclopts.App, package: VerbPackage, name: str, words: Sequence[str], position: Mapping[str, Any]
) -> None:
    """Add a verb of a package, or a group of verbs, to the application, at its position in the help."""
    import cyclopts

    if name in package.groups:
        help_text, verbs = package.groups[name]
        folder = cyclopts.App(name=name, help=help_text, **position)
        for verb, about in verbs.items():
            folder.command(_verb(package, (name, verb), words), name=verb, help=about)
        app.command(folder)
    elif name in package.subverbs and words[:1] in ([name], [INSTALL]):
        app.command(_with_subverbs(package, name, words))
    else:
        app.command(_verb(package, (name,), words), name=name, help=package.verbs[name], **position)


def _help_positions(packages: Sequence[VerbPackage]) -> dict[str, dict[str, Any]]:
    """Return the help group of each verb and its position there, as keywords of cyclopts."""
    import cyclopts

    return {
        verb: {"group": group, "sort_key": index}
        for number, (purpose, verbs) in enumerate(group_by_purpose(packages).items())
        for group in [cyclopts.Group(purpose, sort_key=number)]  # one for all of its verbs: cyclopts asks for that
        for index, verb in enumerate(verbs)
    }


def _with_subverbs(package: VerbPackage, verb: str, words: Sequence[str]) -> cyclopts.App:
    """Return a verb with its subverbs. The verb's module is imported, since only it knows which words are options."""
    import cyclopts

    app = cyclopts.App(name=verb)
    default = _verb(package, (verb,), words)
    if isinstance(default, str):
        default = getattr(importlib.import_module(package.module((verb,))), verb)
    app.default(default)
    for name, about in package.subverbs[verb].items():
        app.command(_verb(package, (verb, name), words), name=name, help=about)
    return app


def _verb(package: VerbPackage, name: tuple[str, ...], words: Sequence[str]) -> str | Callable[..., None]:
    """Return the import path of a verb; if `words` ask for its help or for completion, the verb with all its
    options."""
    path = f"{package.module(name)}:{name[-1]}"
    below = words[len(name) :][:1]
    # "osbert analyse compare --help" is the help of the subverb, not of analyse.
    is_verb = (*words[: len(name)],) == name
    is_verb = is_verb and not (len(name) == 1 and {*below} & {*package.subverbs.get(name[0], ())})
    if words[:1] == [INSTALL] or (_asks_for_help(words) and is_verb):
        from osbert.options import document_verb

        return document_verb(path, None if words[:1] == [INSTALL] else words[len(name) :], OPTIONS)
    return path


def _asks_for_help(words: Sequence[str]) -> bool:
    # After "--" a --help is a text of the user.
    options = words[: words.index("--")] if "--" in words else words
    return "--help" in options or "-h" in options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    0: done; 1: an error the user can mend; 2: wrong usage; 130: interrupted; 143: stopped by SIGTERM before its end.
    """
    import cyclopts

    # First of all: a name or text with unusual characters must not break a message.
    guard_streams()
    output, words = Output.of_words(sys.argv[1:] if arguments is None else arguments)
    try:
        if arguments is None:
            _settle(words)
        app = application(words)
        with output.activate() as entered, warnings.catch_warnings():
            warnings.simplefilter("default", LockWarning)  # once for an output
            warnings.showwarning = _plain(warnings.showwarning)
            errors: dict[str, Any] = {"print_error": not output.json, "error_formatter": _panel, "exit_on_error": False}
            result = app(words, result_action="return_value", **errors)
            if entered.json and result is not None:  # for people the verb itself has printed it
                entered.print_line(event_line(result, "result"))
    except cyclopts.CycloptsError as error:  # cyclopts has printed it, except with --json
        from osbert.console.arguments import advise, describe_usage

        advice = advise(error, words)
        if output.json:
            output.print_error(f"{describe_usage(error)} {advice}".strip(), code="usage")
        elif advice:
            print(advice, file=sys.stderr)
        return 2
    except UserError as error:
        message = str(_with_options(error, app, words) if isinstance(error, UnknownSetting) else error)
        output.print_error(name_packaged_models(explain_addresses(message)), code=error.code, codes=error.codes)
        return 2 if "usage" in error.codes else 1
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        sys.stderr.close()
        return 0
    except (KeyboardInterrupt, SystemExit) as error:
        return _handle_interrupt(error, output)
    except BaseException as error:  # a panic of a native library is no Exception
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":  # installed without its dependencies
            output.print_error(
                "This command computes with torch, which is not installed: pip install torch", code="missing-library"
            )
            return 1
        if not (system_message := _explain_error(error)):
            raise
        output.print_error(system_message, code="system")
        return 1
    return 0


def _settle(words: Sequence[str]) -> None:
    """Set what holds for the whole process of a command."""
    # Processes that are started from here on import no module of the current directory: it may be a stranger's.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    # At its end Python looks through all objects for garbage, several times: half a second when torch is loaded.
    atexit.register(gc.freeze)
    if _asks_for_help(words):
        # Help makes many objects and little garbage: a search for it after each 700 of them is a tenth of the time.
        gc.disable()


def _handle_interrupt(error: KeyboardInterrupt | SystemExit, output: Output) -> int:
    """Print that a signal has ended the work and return the exit status; raise any other exit again."""
    status = error.code if isinstance(error, SystemExit) else STATUS + signal.SIGINT
    if not isinstance(status, int) or status <= STATUS:
        raise error
    output.print_error("interrupted", code="interrupted", prefix="")
    return status


def _plain(show: Callable[..., None]) -> Callable[..., None]:
    """Return a `warnings.showwarning` that prints a LockWarning as one line, and passes other warnings to `show`."""
    note = watching(lambda event: print(f"note: {event}", file=sys.stderr, flush=True), stream=sys.stderr)

    def show_warning(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
        if issubclass(category, LockWarning):
            note(Notice(str(message), warning=True))
        else:
            show(message, category, *location, **more)

    return show_warning


def _explain_error(error: BaseException) -> str:
    """Return a message for an unforeseen error that the user can fix, such as a lack of memory; "" for other errors."""
    if _memory_ran_out(error):
        reason = str(error).strip().partition("\n")[0]
        return (
            f"memory ran out{f' ({reason})' if reason else ''}. Allow the process more (ulimit -v, a container's "
            "limit), close other programs, or use a smaller model or smaller files."
        )
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            f"{error.filename or 'a file'}: too many open files. Raise the limit (ulimit -n), or close other programs."
        )
    if isinstance(error, OSError):  # a folder that cannot be written, a full disk
        # A copy names both of its files; a full disk is that of the second.
        path = (disk_full(error) and error.filename2) or error.filename or "the disk"
        return f"{path}: {error.strerror or error}"
    if type(error).__name__ == "PanicException":
        return f"a library failed ({error}). Is a file of the model or the data damaged?"
    return ""


def _memory_ran_out(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes says that memory ran out: Python's, torch's or the system's."""
    if error is None:
        return False
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, RuntimeError | ImportError | OSError) and any(sign in str(error) for sign in NO_MEMORY):
        return True
    # The lack of memory is often the cause of an ImportError or RuntimeError that libraries raise in its place.
    return _memory_ran_out(error.__cause__ or error.__context__)


def _panel(error: cyclopts.CycloptsError) -> Any:
    """Return what a terminal shows of an error in the words of a command."""
    import cyclopts

    from osbert.console.arguments import describe_usage

    return cyclopts.CycloptsPanel(describe_usage(error))


def _with_options(error: UnknownSetting, app: cyclopts.App, words: Sequence[str]) -> UnknownSetting:
    """Return the error with the verb's own options among the suggested names."""
    _, apps, _ = app.parse_commands(words)
    names = [name for argument in apps[-1].assemble_argument_collection() for name in argument.names]
    options = [name[2:] for name in names if name[:2] == "--"]
    return UnknownSetting(error.name, [*error.known, *options, *OPTIONS], error.tasks)
