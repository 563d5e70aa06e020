"""The settings of a verb as options of its command line; cyclopts parses both by the same rules.

What settings a verb has is known only when its first word is: the task, or the recipe. So a verb declares its own
options, and takes all others as words (`*settings: str`); `parse_settings` reads those once the schema is known.
`osbert VERB WORD --help` shows the settings as options beside the verb's own (`document_verb`).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import cyclopts
from cyclopts import Parameter

from osbert import peers, recipe
from osbert.errors import UnknownSetting, UserError

Verb = TypeVar("Verb", bound=Callable[..., Any])
Schemas = Callable[[Sequence[str]], Sequence[type]]
"""Maps the words after a verb to the dataclasses of its settings; with several, a name may belong to any of them."""


EMPTY = ("", '""', "[]", "none")
"""Defaults that a help text does not show."""
FIRST = "Settings to look at first"
"""The heading in a verb's help above the few settings that most users change."""


def takes_settings(schemas: Schemas, *, first: Sequence[str] = ()) -> Callable[[Verb], Verb]:
    """Return a decorator that registers a verb's settings for its help. `first`: the settings that the help shows
    first."""

    def mark_verb(verb: Verb) -> Verb:
        verb.settings_schemas = schemas  # type: ignore[attr-defined]
        verb.first_settings = first  # type: ignore[attr-defined]
        return verb

    return mark_verb


def parse_settings(words: Sequence[str], *schemas: type) -> dict[str, Any]:
    """Return the settings among the words of a command line by dotted name, for `recipe.override` to check.

    Options are `--model.layers 4`, `--layers 4` where only one table has that name, `--key=value`, and for booleans
    `--key`, `--no-key` and `--key false`. If an option is given twice, the last one counts. Raises UserError at a
    word that is not a setting.

    >>> from osbert.reading.documents import DocumentOptions
    >>> parse_settings(["--documents", "line", "--field=body"], DocumentOptions)
    {'documents': 'line', 'field': 'body'}
    """
    kinds = {path: kind for schema in schemas for path, kind, _ in recipe.fields(schema)}
    meanings = _meanings(kinds)
    joined = _translate(_attach_values(words), meanings)
    _refuse_negated(joined, kinds, meanings)
    app = _parser(joined, kinds, meanings)
    try:
        return dict(app(joined, exit_on_error=False, print_error=False, result_action="return_value"))
    except cyclopts.CycloptsError as error:
        raise _refusal(error, meanings, schemas) from error


def among(words: Sequence[str], schema: type) -> dict[str, Any]:
    """Return the settings of a schema that occur among the words of a command line; ignore all other words."""
    kinds = {path: kind for path, kind, _ in recipe.fields(schema)}
    joined = _attach_values(words)
    collect, bound, *_ = _parser(joined, kinds, _meanings(kinds)).parse_known_args(joined)
    return dict(collect(**bound.kwargs))


def _parser(words: Sequence[str], kinds: Mapping[str, Any], meanings: Mapping[str, list[str]]) -> cyclopts.App:
    """Return a parser for the settings that the words name, and no others, which returns them by name."""

    # Where several tables have a name, it stands for itself: `recipe.override` says which they are.
    names_by_path: dict[str, list[str]] = {}
    for name, several in meanings.items():
        names_by_path.setdefault(several[0] if len(several) == 1 else name, []).append(name)
    # A verb has hundreds of settings: to make an option of each takes most of the time in which a command is read.
    named = {form for word in words if word.startswith("--") for form in _forms(word)}
    names_by_path = {
        path: names for path, names in names_by_path.items() if any(_bare(name) in named for name in names)
    }
    options = [_option(path, names, kinds[meanings[names[0]][0]]) for path, names in names_by_path.items()]
    paths = {option.name: path for option, path in zip(options, names_by_path, strict=True)}

    # cyclopts reads its options from a signature: `collect` gets a synthetic one with an option per setting.
    def collect(**option_values: list[Any]) -> dict[str, Any]:
        # Of a repeated option the last value counts.
        return {paths[name]: values[-1] for name, values in option_values.items()}

    collect.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    app = cyclopts.App(help_flags=[], version_flags=[])
    app.default(collect)
    return app


def document_verb(import_path: str, words: Sequence[str] | None, flags: Mapping[str, str]) -> Callable[..., None]:
    """Return a verb with all its possible options in its signature, for its help and for completion.

    `import_path`: the verb's module and function, as in "osbert_lab.commands.plan:plan". `words`: those after the verb,
    which decide the settings; None for no settings. `flags`: options that every verb has, with their help.
    """
    module, _, function = import_path.partition(":")
    verb = getattr(importlib.import_module(module), function)

    def show_help() -> None:
        """Stand in for the verb: only the help of this function is shown."""

    parameters = [*inspect.signature(verb, eval_str=True).parameters.values()]
    settings: list[inspect.Parameter] = []
    if words is not None and hasattr(verb, "settings_schemas"):
        with suppress(ImportError, UserError):  # an unknown task or recipe
            named_parameters = [value for value in parameters if value.kind is not inspect.Parameter.VAR_POSITIONAL]
            taken = {_option_name(parameter.name) for parameter in named_parameters}
            settings = [*_document_settings(verb.settings_schemas(words), taken, verb.first_settings)]
            parameters = named_parameters
    for name, text in flags.items():
        flag = Parameter(name=_option_name(name), negative=(), help=text, show_default=False, group="Output")
        annotation = Annotated[bool, flag]
        settings.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=False))
    # The signature is what cyclopts shows in the help and completes.
    show_help.__signature__ = inspect.Signature([*parameters, *settings])  # type: ignore[attr-defined]
    show_help.__doc__ = verb.__doc__
    return show_help


def _document_settings(schemas: Sequence[type], taken: set[str], first: Sequence[str]) -> Iterator[inspect.Parameter]:
    """Yield the settings as options with their help, grouped by table; the settings in `first` get a group at the top.

    `taken`: the verb's own options.
    """
    above = cyclopts.Group(FIRST, sort_key=0)
    kinds = {path: kind for schema in schemas for path, kind, _ in recipe.fields(schema)}
    meanings = _meanings(kinds)
    # Tables that several schemas share come once.
    rows = {row[0]: row for schema in schemas for row in recipe.describe_settings(schema)}
    order = {name: position for position, name in enumerate(first)}
    for path, kind, default, document in sorted(rows.values(), key=lambda row: order.get(_leaf(row[0]), len(order))):
        if _option_name(path) in taken:  # as the minutes of `osbert plan`
            continue
        table = path.rpartition(".")[0]
        leaf = _leaf(path)
        short = meanings[leaf] == [path] and _option_name(leaf) not in taken
        switch = leaf if short else path
        yield _option(
            path,
            dict.fromkeys([path, *([leaf] if short else [])]),
            kinds[path],
            group=above if leaf in order else cyclopts.Group(table or "Settings"),
            help=document,
            # The help shows a switch's shortest negative only, and spaces at which a list of words can break.
            negative=_option_name("no-".join(_split_path(switch))) if kinds[path] is bool else None,
            metavar=None if kinds[path] is bool else kind.upper().replace("|", " | "),
            show_default=False if default in EMPTY or "(default)" in document else default,
        )


def _split_path(path: str) -> tuple[str, str]:
    """Return the table of a setting with its dot, "" if there is none, and the setting's name."""
    table, dot, name = path.rpartition(".")
    return table + dot, name


def _leaf(path: str) -> str:
    """Return the usual short name of a setting: its last part, with the outer table if it is nested."""
    return recipe.short_names(path)[-1] if "." in path else path


def _option(path: str, names: Iterable[str], kind: Any, **keywords: Any) -> inspect.Parameter:
    """Return an option with a setting's names. A boolean is a flag; any other value is kept as a Word and parsed
    later."""

    def values(_: Any, tokens: Sequence[cyclopts.Token]) -> list[Any]:
        return [token.implicit_value if kind is bool else recipe.Word(token.value) for token in tokens]

    held: Any = list[bool] if kind is bool else list[str]  # a list may stand there twice
    parameter = Parameter(
        name=[_option_name(name) for name in names], converter=values, negative_iterable=(), **keywords
    )
    annotation = Annotated[held | None, parameter]
    return inspect.Parameter(
        path.replace(".", "__"), inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None
    )


def _meanings(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return, for each full or short name, the settings that it can mean."""
    meanings: dict[str, list[str]] = {}
    for path in paths:
        for name in (path, *recipe.short_names(path)):
            meanings.setdefault(name, []).append(path)
    return meanings


def _option_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _setting_name(word: str) -> str:
    """Return the name in an option: "--no-ham=3" gives "no_ham"."""
    return word.removeprefix("--").partition("=")[0].replace("-", "_")


def _bare(name: str) -> str:
    """Return a name in lower case and without underscores, since cyclopts takes names that differ in these for one."""
    return name.lower().replace("_", "")


def _forms(word: str) -> set[str]:
    """Return the bare names that an option may mean: its own, and without a "no" that negates it."""
    name = _bare(_setting_name(word))
    table, leaf = _split_path(name)
    return {name, name.removeprefix("no"), table + leaf.removeprefix("no")}


def _attach_values(words: Sequence[str]) -> list[str]:
    """Return the words with ambiguous values attached to their option, as --key=value.

    They are true and false after a flag, and what begins with one hyphen and is no number, as in --layers -1,-2.
    """
    joined: list[str] = []
    for word in words:
        value = word.lower() in ("true", "false") or (word.startswith("-") and not word.startswith("--"))
        if value and joined and joined[-1].startswith("--") and "=" not in joined[-1]:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _translate(words: Sequence[str], meanings: Mapping[str, list[str]]) -> list[str]:
    """Return words with foreign names of settings translated. Raises UserError for a name that means something else
    here."""
    values = {_setting_name(word): word.partition("=")[2] or after for word, after in pairwise([*words, ""])}
    given = {name: "" if value.startswith("--") else value for name, value in values.items()}
    translated = []
    for word in words:
        name, (option, equals, value) = _setting_name(word), word.partition("=")
        if option.startswith("--") and (translation := peers.translate(name, value, meanings)):
            setting, new_value = translation
            word = f"{_option_name(setting)}{'=' if new_value else equals}{new_value}"
        elif option.startswith("--"):
            peers.refuse_other(name, given[name], given, meanings)
        translated.append(word)
    return translated


def _refuse_negated(words: Sequence[str], kinds: Mapping[str, Any], meanings: Mapping[str, list[str]]) -> None:
    """Raise UserError for a --no- form with a value, or of a setting that is not a boolean."""
    for word in words:
        name = _setting_name(word)
        table, dot, leaf = name.rpartition(".")
        paths = [] if name in meanings else meanings.get(f"{table}{dot}{leaf.removeprefix('no_')}", [])
        if paths and ("=" in word or kinds[paths[0]] is not bool):
            raise UserError(
                f"{word.partition('=')[0]} is not an option: --no- works for boolean settings only, and takes no "
                "value.",
                code="invalid-value",
            )


def _refusal(error: cyclopts.CycloptsError, meanings: Mapping[str, list[str]], schemas: Sequence[type]) -> UserError:
    """Convert an error of cyclopts about settings to a UserError."""
    kinds = {path: kind for schema in schemas for path, kind, *_ in recipe.describe_settings(schema)}
    if isinstance(error, cyclopts.UnknownOptionError):
        word = error.token.keyword or ""
        if word.startswith("--"):
            return UnknownSetting(_setting_name(word), meanings)
    elif isinstance(error, cyclopts.MissingArgumentError) and (word := error.keyword or ""):
        return UserError(f"{word} needs a value ({kinds[meanings[_setting_name(word)][0]]}).", code="missing-value")
    elif isinstance(error, cyclopts.CoercionError) and error.token and (word := error.token.keyword or ""):
        return UserError(
            f"{word} must be {kinds[meanings[_setting_name(word)][0]]}, not '{error.token.value}'.",
            code="invalid-value",
        )
    else:
        word = (error.unused_tokens or [str(error)])[0]
    return UserError(f"'{word}' is not a setting: settings look like --steps 1000.", code="not-a-setting")
