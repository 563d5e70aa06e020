"""The one exception whose text is meant for the user: what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from json import JSONDecodeError

ALIKE = 0.75
"""From which similarity a name is suggested for another (difflib's ratio, 0 to 1)."""


class UserError(Exception):
    """Something the user can mend. The command line prints its text without a traceback and exits with 1.

    >>> try:
    ...     osbert.train_tokenizer(["a text"], out="vocabulary", vocabulry=60)
    ... except osbert.errors.UserError as error:
    ...     print(error.code, "|", error)
    unknown-setting | Unknown setting --vocabulry. Did you mean 'vocabulary'?
    """

    code: str
    """The kind of the error, a name that stays the same when the wording changes (docs/errors.md lists them)."""
    codes: tuple[str, ...]
    """The kinds of all the problems that the text lists, `code` first."""

    def __init__(self, message: str, *, code: str = "refused", codes: Iterable[str] = ()) -> None:
        """Say what is wrong, where, and what to do. `refused` is the code of components that give none."""
        super().__init__(message)
        self.code = code
        self.codes = (code, *dict.fromkeys(other for other in codes if other != code))


class UnknownSetting(UserError):
    """A setting that there is not. The command line looks for the nearest among its own options as well.

    >>> print(UnknownSetting("epoch", ["epochs", "batch"]))
    Unknown setting --epoch. Did you mean 'epochs'?
    """

    def __init__(self, name: str, known: Iterable[str], tasks: Iterable[str] = ()) -> None:
        """Name it, the nearest of those that are `known`, and the `tasks` that have it."""
        self.name = name
        self.known, self.tasks = tuple(known), tuple(tasks)
        belongs = f" It belongs to {', '.join(self.tasks)}." if self.tasks else ""
        super().__init__(
            f"Unknown setting --{name.replace('_', '-')}.{nearest(name, self.known)}{belongs}", code="unknown-setting"
        )


class Problems:
    """Collects every problem of an input, so that all are reported at once and before the expensive work.

    At most `limit` are spelt out; the rest are counted.

    >>> problems = Problems(heading="reviews.csv cannot be used")
    >>> problems.add("line 2: the label is empty. Write it, or remove the row.")
    >>> problems.stop_if_any()
    Traceback (most recent call last):
    ...
    osbert.errors.UserError: reviews.csv cannot be used:
      - line 2: the label is empty. Write it, or remove the row.
    """

    def __init__(self, *, heading: str, limit: int = 20) -> None:
        """Collect problems under `heading`, a phrase such as "reviews.csv cannot be used"."""
        self.heading = heading
        self.limit = limit
        self.messages: list[str] = []
        self.codes: dict[str, None] = {}
        self.count = 0

    def add(self, message: str, *, code: str = "refused") -> None:
        """Note one problem; the message says what, where (file, line, value) and what to do, `code` of which kind."""
        self.count += 1
        self.codes[code] = None
        if len(self.messages) < self.limit:
            self.messages.append(message)

    def add_from(self, name: str, error: UserError) -> None:
        """Note the problems of one of several things, by its name."""
        self.add_error(UserError(f"{name}: {error}", code=error.code, codes=error.codes))

    def add_error(self, error: UserError) -> None:
        """Note the problems of an error."""
        self.add(str(error).replace("\n", "\n  "), code=error.code)
        self.codes |= dict.fromkeys(error.codes)

    def stop_if_any(self) -> None:
        """Raise a UserError that lists what was noted, if anything was."""
        if not self.count:
            return
        lines = [f"{self.heading}:", *(f"  - {message}" for message in dict.fromkeys(self.messages))]
        if self.count > len(self.messages):
            lines.append(f"  ... and {self.count - len(self.messages):,} more")
        first, *others = self.codes
        raise UserError("\n".join(lines), code=first, codes=others)


def nearest(name: str, known: Iterable[str], template: str = " Did you mean '{}'?") -> str:
    """Return `template` with the known name closest to `name`, or "" when none is close.

    Close is what is spelt much alike, differs in one letter, or begins with the name.

    >>> nearest("lerning_rate", ["learning_rate", "epochs"]), nearest("patience", ["pair"])
    (" Did you mean 'learning_rate'?", '')
    """
    wanted, names = str(name).casefold(), {str(other).casefold(): str(other) for other in known}
    matches = get_close_matches(wanted, names, n=1, cutoff=ALIKE)
    matches += [other for other in names if len(wanted) > 1 and differ_in_one_letter(wanted, other)]
    matches += [other for other in names if len(wanted) > 2 and other.startswith(wanted)]
    return template.format(names[matches[0]]) if matches else ""


def differ_in_one_letter(first: str, second: str) -> bool:
    """Return whether two texts differ in one letter that is another, one too many, or swapped with its neighbour.

    >>> [differ_in_one_letter("positive", other) for other in ("postive", "posotive", "psoitive", "position")]
    [True, True, True, False]
    """
    start = next(
        (index for index, pair in enumerate(zip(first, second)) if pair[0] != pair[1]), min(len(first), len(second))
    )
    # From the first difference on: either the rest is equal after one letter of the longer text (insertion), after one
    # letter of both (substitution), or after two swapped letters.
    short, long = sorted((first[start:], second[start:]), key=len)
    swapped = short[:2] == long[1::-1] and short[2:] == long[2:]
    return first != second and (short == long[1:] or (len(short) == len(long) and short[1:] == long[1:]) or swapped)


def not_json(error: JSONDecodeError) -> str:
    """Return what is wrong with a text that is no JSON, without a place.

    Some of Python's own messages end in "at", for a place to follow; others do not.

    >>> import json
    >>> try:
    ...     json.loads('{"a')
    ... except json.JSONDecodeError as error:
    ...     print(not_json(error))
    Unterminated string
    """
    return error.msg.removesuffix(" starting at").removesuffix(" at")
