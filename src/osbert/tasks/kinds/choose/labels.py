"""The choice that a label means: by number, letter or text, detected once per file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from osbert.errors import UserError
from osbert.tasks.kinds.choose.records import Counting, names
from osbert.tasks.tables import UnlabelledRow

NAMED: tuple[Counting, ...] = ("0", "1", "A")
"""The ways to count choices by name."""
GIVE = (
    "give --counting text where labels are texts of choices, else 0, 1 or A, what they call the first choice (to score "
    "a run on the file: --columns.counting text)"
)


@dataclass(frozen=True, kw_only=True)
class ChoiceLabel:
    """A row's label and its possible meanings: one of the `choices`, or one of their names `called`, () for none.

    `location`: where it stands, for messages.
    """

    label: str
    choices: Sequence[str]
    called: Sequence[str] = ()
    location: str = ""

    @property
    def text(self) -> int | None:
        """Return the index of the choice with the label as its text, None if there is none or more than one."""
        texts = [choice.strip() for choice in self.choices]
        return texts.index(self.label.strip()) if texts.count(self.label.strip()) == 1 else None

    def find_by_name(self, counting: Counting) -> int | None:
        """Return the index of the choice with the label as its name in a way of counting, None if there is none."""
        called = [*(self.called or names(len(self.choices), counting))]
        matches = [spelling for spelling in (self.label.strip(), self.label.strip().upper()) if spelling in called]
        return called.index(matches[0]) if matches else None

    def differs(self, counting: Counting) -> bool:
        """Return whether the label is the name of one choice and the text of another."""
        return None not in (self.text, self.find_by_name(counting)) and self.text != self.find_by_name(counting)


def choice_index(choice_label: ChoiceLabel, counting: Counting) -> int:
    """Return the index of the choice that a label means, for a file's way of counting.

    Where labels are names one may still be a text, but none that looks like a name: a number beside numbers, a letter
    beside letters. Raises ValueError, saying why, when it means none.
    """
    label = choice_label.label.strip()
    if not label:
        raise UnlabelledRow("the label is empty")
    index = choice_label.text if counting == "text" else choice_label.find_by_name(counting)
    if index is None and counting != "text" and not _like_a_name(label, counting):
        index = choice_label.text
    if index is not None:
        return index
    if counting == "text":
        raise ValueError(f"the label '{label}' is not the text of just one of the {len(choice_label.choices)} choices")
    called = ", ".join(choice_label.called or names(len(choice_label.choices), counting))
    more = ". Write one of these, or remove the row" if choice_label.text is None else f", but the text of one: {GIVE}"
    raise ValueError(f"the label '{label}' is none of the {len(choice_label.choices)} choices ({called}){more}")


def counting_of(rows: Sequence[ChoiceLabel]) -> Counting:
    """Detect the meaning of a file's labels from all of its rows.

    They are texts if each label is the text of a choice in its row, and numbers or letters if each is one of those.
    Raises UserError if both readings fit and disagree, or if neither fits all rows.
    """
    rows = [row for row in rows if row.label.strip()]
    if rows and all(row.text is not None for row in rows):
        fitting = [way for way in NAMED if all(row.find_by_name(way) is not None for row in rows)]
        if not fitting:
            return "text"
        agreeing = [way for way in fitting if not any(row.differs(way) for row in rows)]
        if agreeing:
            return agreeing[0]
        _refuse(rows, fitting[0])
    counting = _first(rows)
    if any(row.find_by_name(counting) is None and row.text is not None for row in rows):
        _refuse(rows, counting)
    return counting


def _refuse(rows: Sequence[ChoiceLabel], counting: Counting) -> None:
    """Raise UserError at a label that is the name of one choice and the text of another, if there is any."""
    wrong = [row for row in rows if row.differs(counting)]
    if not wrong:
        return
    first = wrong[0]
    named = first.choices[first.find_by_name(counting) or 0]
    raise UserError(
        f"{first.location}: the label '{first.label.strip()}' is the text of a choice, and as a "
        "number or letter it means "
        f"another one, '{named.strip()}' (counted from {counting}); so it is in {len(wrong):,} of {len(rows):,} rows. "
        f"Both readings are possible: {GIVE}.",
        code="ambiguous-label",
    )


def _first(rows: Sequence[ChoiceLabel]) -> Counting:
    """Detect the name of the first choice.

    It is 1 if no label is 0 and some label equals the number of its row's choices, which is impossible counting from 0.
    Rows that name their choices are ignored; so are numbers that are texts if some labels are words.
    """
    counted = [row for row in rows if not row.called]
    if counted and all(_like_a_name(row.label.strip(), "A") for row in counted):
        return "A"
    if not all(_like_a_name(row.label.strip(), "0") for row in counted):
        counted = [row for row in counted if row.text is None]
    if any(row.label.strip() == "0" for row in counted):
        return "0"
    return "1" if any(row.label.strip() == str(len(row.choices)) for row in counted) else "0"


def _like_a_name(label: str, counting: Counting) -> bool:
    return len(label) == 1 and label.isalpha() if counting == "A" else label.isdigit()
