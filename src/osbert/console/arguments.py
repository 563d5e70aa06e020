"""Checks the arguments of a command together, once all words are parsed: its options, its input files, its models."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from inspect import BoundArguments
from pathlib import Path
from typing import Annotated, Any, TypeVar

import cyclopts
from cyclopts import Parameter

from osbert.errors import Problems, UserError
from osbert.interop.opening import Opening
from osbert.peers import option_advice, option_meant
from osbert.remote import split_address
from osbert.runs.rows.standard_input import STREAM

Verb = TypeVar("Verb", bound=Callable[..., Any])

ABSENT = "\0"
"""Stands for the value of a required option that is missing, so that the other words are still parsed and checked."""


@dataclass(frozen=True)
class ModelArgument:
    """A model as a word of the command line. It is fetched after all words are parsed."""

    word: str

    def open(self) -> Path:
        """Return the folder of the model, downloaded if necessary. Raises UserError as `locate`."""
        from osbert.console.model_downloads import locate_folder

        return locate_folder(self.word)

    def check(self) -> Path | None:
        """Return the folder of the model, None if it would be downloaded. Raises UserError if there is no such model.

        Nothing is downloaded.
        """
        from osbert.interop.folder import Folder
        from osbert.interop.hub import ModelLocation, find

        path = find(self.word)
        if path is not None:
            Folder(ModelLocation(path=path)).require_config()
        return path


@dataclass(frozen=True)
class FileArgument:
    """An input file or folder as a word of the command line."""

    word: str

    def check(self) -> None:
        """Raise UserError if a local file or folder is not there."""
        path = Path(self.word)
        if path != STREAM and split_address(self.word) is None and not path.exists():
            raise UserError(f"{self.word}: no such file", code="missing-file")


class ValidationExemption:
    """Metadata of a type: pydantic, which cyclopts asks where it is loaded, takes the argument as it is."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()


ModelFolder = Annotated[
    Path, Parameter(converter=lambda kind, tokens: ModelArgument(tokens[0].value)), ValidationExemption()
]
"""The type of an option for a model: a folder, or a name such as google-bert/bert-base-uncased or minilm."""

OpeningOptions = Annotated[Opening, Parameter(name="*")]
"""The options of every command that opens a model: --trust and --no-verify."""

InputFile = Annotated[
    Path, Parameter(converter=lambda kind, tokens: FileArgument(tokens[0].value)), ValidationExemption()
]
"""The type of an option for an input file or folder, which is checked together with the options and the model."""


def checks_options(check: Callable[[Mapping[str, Any]], object]) -> Callable[[Verb], Verb]:
    """Return a decorator that registers a check of a verb's options, by name, which raises UserError.

    Its error is reported in one message with those of words, files and models.
    """

    def mark(verb: Verb) -> Verb:
        verb.check_options = check  # type: ignore[attr-defined]
        return verb

    return mark


class CheckedApp(cyclopts.App):
    """A cyclopts App that checks and opens the arguments of a verb between the parsing and the call."""

    def parse_args(self, tokens: Any = None, **options: Any) -> tuple[Callable[..., Any], BoundArguments, Any]:
        """Parse words as cyclopts does, and open the models among them.

        Raises UserError that lists wrong words, options, files and models, and CycloptsError for a wrong word alone.
        """
        words, errors, refused = [*tokens], list[UserError](), set[str]()
        parse: Callable[..., Any] = partial(super().parse_args, **options)
        while True:
            try:
                parsed = parse(words, print_error=False, exit_on_error=False)
                break
            except cyclopts.CycloptsError as usage:
                missing = _missing_option(usage)
                changed = [*words, missing, ABSENT] if missing else _drop_option(words, usage)
                # An option that is refused and required is missing next; one that takes no ABSENT is refused next.
                if changed == words or (missing and ("--" in words or missing in refused)):
                    return parse(tokens)  # once more: cyclopts prints the error
                refused.add(missing or _refused_option(usage))
                errors.append(UserError(f"{describe_usage(usage)} {advise(usage, words)}".strip(), code="usage"))
                words = changed
        if errors:
            for name in [name for name, value in parsed[1].arguments.items() if _is_absent(value)]:
                del parsed[1].arguments[name]
        open_arguments(parsed[0], parsed[1], errors)
        if [error.code for error in errors] == ["usage"]:
            return parse(tokens)
        if len(errors) == 1:
            raise errors[0]
        problems = Problems(heading="This command cannot begin")
        for error in errors:
            problems.add_error(error)
        problems.stop_if_any()
        return parsed


def open_arguments(verb: Callable[..., Any], bound: BoundArguments, errors: list[UserError]) -> None:
    """Replace the models and files among the arguments of a verb by their paths, and add what is wrong to `errors`.

    `errors`: those of the words. No model is downloaded if there is an error. A single error, of a file beside local
    models, is left to the verb, which describes it best.
    """
    arguments = [argument for value in bound.arguments.values() for argument in _unopened(value)]
    paths: dict[ModelArgument | FileArgument, Path | None] = {}
    if check_options := getattr(verb, "check_options", None):
        _gather(partial(check_options, bound.arguments), errors)
    options_valid = not errors
    for argument in arguments:
        if isinstance(argument, FileArgument):
            paths[argument] = Path(argument.word)
            _gather(argument.check, errors)
    for argument in arguments:
        if isinstance(argument, ModelArgument):
            paths[argument] = _gather(argument.check if errors else argument.open, errors)
    if options_valid and len(errors) == 1 and all(paths.values()):
        errors.clear()
    for name, value in bound.arguments.items():
        if opened := [paths[argument] for argument in _unopened(value)]:
            bound.arguments[name] = tuple(opened) if isinstance(value, tuple) else opened[0]


def describe_usage(error: cyclopts.CycloptsError) -> str:
    """Return the message of an error in the words of a command; of an unknown option with advice of ours.

    cyclopts proposes any option that is half alike, such as --abstain for --data.
    """
    if missing := _missing_option(error):
        return f"The option {missing} is required."
    if isinstance(error, cyclopts.UnusedCliTokensError):
        words = " ".join(shlex.quote(word) for word in error.unused_tokens or ())
        return f"No value is expected here: {words}. Give it behind the option that it is for; --help lists them."
    if not isinstance(error, cyclopts.UnknownOptionError):
        return str(error)
    word = (error.token.keyword or error.token.value).partition("=")[0]
    options = [name for argument in error.argument_collection if argument.parse for name in argument.names]
    return f"Unknown option: {word}. {option_advice(word, options)}".strip()


def advise(error: cyclopts.CycloptsError, words: Sequence[str]) -> str:
    """Return advice on a usage error; else "".

    It is for several columns in one value, and for a missing option that was given under a similar name, which the verb
    took for a setting.
    """
    if isinstance(error, cyclopts.CoercionError) and error.argument and error.argument.name == "--columns":
        return "Name each column separately: --columns.question frage --columns.paragraph text --columns.choices b,c,d."
    if not isinstance(error, cyclopts.MissingArgumentError) or error.argument is None:
        return ""
    missing, given = error.argument.name, [word.partition("=")[0] for word in words]
    like = option_meant(given, missing) or next(iter(get_close_matches(missing, given, n=1, cutoff=0.7)), missing)
    return f"Did you mean {missing} by {like}?" if like != missing else ""


def _unopened(value: Any) -> Iterator[ModelArgument | FileArgument]:
    """Yield the models and files in an argument of a verb: itself, or those of a tuple."""
    for entry in value if isinstance(value, tuple) else (value,):
        if isinstance(entry, ModelArgument | FileArgument):
            yield entry


def _gather(check: Callable[[], Any], errors: list[UserError]) -> Any:
    """Return what a check returns; None, with its UserError added to `errors`, if it fails."""
    try:
        return check()
    except UserError as error:
        errors.append(error)
        return None


def _missing_option(error: cyclopts.CycloptsError) -> str:
    """Return the name of the required option that cyclopts misses; "" for any other error."""
    if isinstance(error, cyclopts.MissingArgumentError) and error.argument and not error.argument.tokens:
        return name if (name := error.argument.name).startswith("--") and error.keyword is None else ""
    return ""


def _is_absent(value: Any) -> bool:
    """Return whether an argument stands for a missing option."""
    word = value.word if isinstance(value, ModelArgument | FileArgument) else value
    return isinstance(word, str | Path) and str(word) == ABSENT


def _refused_option(error: cyclopts.CycloptsError) -> str:
    """Return the option that cyclopts refuses, as it was spelt; "" for an error of another kind."""
    token = getattr(error, "token", None)
    return (token.keyword or token.value).partition("=")[0] if token else ""


def _drop_option(words: Sequence[str], error: cyclopts.CycloptsError) -> list[str]:
    """Return words without the option that cyclopts refuses, and its value; all words if it refuses no option."""
    option = _refused_option(error)
    for index, word in enumerate(words):
        if option.startswith("--") and word.partition("=")[0] == option:
            # A word after an option is its value, unless it is an option.
            has_value = "=" not in word and not "".join(words[index + 1 : index + 2]).startswith("--")
            return [*words[:index], *words[index + 1 + has_value :]]
    return [*words]


def require_texts_or_file(
    usage: str, texts: Sequence[str], file: Path | None, out: Path | None, *, streams: bool = False
) -> None:
    """Raise UserError unless there are texts alone, none of which is the path of a file, or a file with its output.

    `usage`: a sentence with an example of each. `streams`: whether rows are printed without an output. A text is a path
    if it exists, and has a folder or a suffix.
    """
    problem = ""
    if texts and (file or out):
        given = " and ".join(name for name, path in (("--file", file), ("--out", out)) if path)
        problem = f"Texts ('{texts[0]:.40}') and {given} exclude each other. "
    elif file and not (out or streams):
        problem = f"--file {file} needs --out. "
    elif path := next((text for text in texts if os.path.isfile(text) and (os.sep in text or Path(text).suffix)), ""):
        problem = (
            f"{path} is a file, which --file {shlex.quote(path)} reads. If its name itself is the text, add a space to "
            "it, or start in another folder. "
        )
    elif texts or file:
        return
    raise UserError(problem + usage, code="missing-option")
