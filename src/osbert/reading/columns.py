"""Which column of a table is what: for every role the one that the user names, else one with a usual name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from osbert.errors import UserError, nearest

ROLES: Mapping[str, tuple[str, ...]] = {
    # A text, or the texts of a pair (PAIRS), with a class or a number (TIERS), or with several labels.
    "text": ("text", "sentence", "review", "content", "comment", "document", "message", "tweet", "body", "question"),
    "labels": ("labels", "tags", "categories", "classes", "topics", "genres", "emotions", "targets"),
    "hard negative": ("negative", "hard_negative", "hard_neg", "neg"),
    # A text to read, and the one to write for it.
    "source": (
        *("source", "src", "input", "inputs", "document", "article", "dialogue", "passage"),
        *("context", "text", "sentence", "content", "doc", "question"),
    ),
    "target": (
        *("target", "tgt", "output", "outputs", "summary", "highlights", "translation", "reference", "references"),
        *("response", "answer", "title", "label"),
    ),
    # A context and its choices: a list of them, or a column for each, with a number or a letter behind its name.
    "context": ("sent1", "ctx", "context", "premise", "question", "stem", "story", "sentence", "text"),
    "choices": ("choices", "endings", "options", "candidates", "answers"),
    "choice": ("ending", "choice", "option", "answer", "alternative", "solution", "sol", "randomfifthsentencequiz"),
    "right choice": ("label", "answer", "answerkey", "gold", "correct", "answerrightending"),
    # A query and its candidates, with their relevance or as positives and negatives.
    "query": ("query", "question", "anchor", "text_a", "context"),
    "candidate": (
        *("document", "passage", "text", "candidate", "doc", "answer", "sentence", "response", "context", "text_b"),
        *("documents", "passages", "texts", "candidates", "docs", "answers", "sentences", "responses", "choices"),
    ),
    "relevance": ("label", "relevance", "score", "grade", "labels", "relevances", "scores", "grades"),
    "positive": ("positive", "positives", "pos"),
    "negative": ("negative", "negatives", "neg"),
    # A question about a paragraph, and its answers.
    "question": ("question", "query"),
    "paragraph": ("context", "paragraph", "passage", "text", "document", "doc"),
    "answer": ("answers", "answer", "answer_text"),
    "answer start": ("answer_start", "start"),
    "key": ("id", "qid", "question_id"),
    # The ids of queries and documents: of a text itself, and in judgements.
    "text key": (
        *("_id", "id", "corpus-id", "corpus_id", "query-id", "query_id", "qid", "docid", "doc_id", "docno"),
        *("document_id", "pid"),
    ),
    "query key": ("query-id", "query_id", "qid", "query"),
    "document key": ("corpus-id", "corpus_id", "docid", "doc_id", "docno", "document_id", "pid", "document"),
    # Words with their tags, or a text with its entities.
    "words": ("tokens", "words"),
    "tags": ("tags", "ner_tags", "labels", "label"),
    "tagged text": ("text", "sentence", "content"),
    "entities": ("entities", "spans", "label", "labels"),
}
"""Role -> the usual names of its column, in lower case: the first one that a table has is used."""
_DOCUMENT = "doc"
"""A name of a column with texts, or with their numbers: taken for texts where no other name is usual."""
PAIRS = (
    ("text", "pair"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question", "context"),
    ("query", "passage"),
    ("query", "document"),
    ("#1 string", "#2 string"),
)
"""Usual names, in lower case, of the two columns of a pair. The page has them, too (server/page/table_file.js)."""
TIERS = {
    "class": (
        ("label",),
        ("class", "category", "sentiment", "target", "gold_label", "is_duplicate", "intent", "topic"),
    ),
    "number": (("score",), ("target", "value", "similarity", "rating", "stars", "y"), ("label",)),
}
"""Role -> tiers of usual names of its column: of the first tier that a table has a name of, it must have only one."""
CLASS_HEADINGS = tuple(name for tier in TIERS["class"] for name in tier)
"""Usual names, in lower case, of a column of classes."""
_KNOWN = frozenset(
    [*ROLES["text"], _DOCUMENT, *chain.from_iterable(PAIRS)]
    + [name for tiers in TIERS.values() for tier in tiers for name in tier]
)


def headings(*roles: str) -> tuple[str, ...]:
    """Return the usual names of some roles: a first line that contains one of these is a header."""
    return tuple(name for role in roles for name in ROLES[role])


class Header:
    """The column names of a table, to choose from; `called` is the name of the table in messages."""

    def __init__(self, columns: Sequence[str], called: str) -> None:
        """Use these columns; of names that differ only in case, the first one wins."""
        self.columns = columns
        self.by_name = {name.strip().lower(): name for name in reversed(columns)}
        self.listed = f"{called} has the columns {', '.join(map(repr, columns))}"

    def require(self, name: str, *, option: str = "", advice: str = "") -> None:
        """Raise UserError with `advice` if the column that the user named ("" for none) does not exist."""
        if name and name not in self.columns:
            given = f" (--{option})" if option else ""
            raise UserError(
                f"{self.listed}; there is no '{name}'{given}.{nearest(name, self.columns)}{advice}",
                code="unknown-column",
            )

    def find(self, role: str, name: str = "", *, but: Sequence[str] = ()) -> str:
        """Return the column of a role (`ROLES`): the one that the user named, if there is one of this `name`.

        Else the one with the first usual name that is none of the columns `but`; "" if there is none.
        """
        if name and name in self.columns:
            return name
        usual = (self.by_name[heading] for heading in ROLES[role] if heading in self.by_name)
        return next((column for column in usual if column not in but), "")

    def missing(self, names: str, advice: str) -> UserError:
        """Return the error for a table in which no column has a usual name."""
        return UserError(f"{self.listed}; none is called {names}{advice}", code="unknown-column")


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """The chosen columns: one text, or two for pairs; `label` is "" if there is none."""

    text: str
    pair: str = ""
    label: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the text columns, one or two."""
        return (self.text, self.pair) if self.pair else (self.text,)

    def describe(self, *, labelled: bool = True) -> str:
        """Describe the choice; with `labelled` False it says that labels are not read."""
        texts = f"text from '{self.text}'" if not self.pair else f"pairs from '{self.text}' and '{self.pair}'"
        label = f"label from '{self.label}'" if labelled else f"the labels in '{self.label}' are not read"
        return f"{texts}, {label if self.label else 'no label'}"


def is_known(name: str) -> bool:
    """Return whether a name is a usual column name."""
    return name.strip().lower() in _KNOWN


def choose(
    columns: Sequence[str], *, user_columns: TextColumns, path: str, numbers: bool = False, labelled: bool = True
) -> TextColumns:
    """Return the columns to use: those in `user_columns` ("" if not given), else those with usual names.

    `numbers`: the label is a number (regression), which prefers "score" to "label". `labelled`: a label is required;
    otherwise it may be "". Raises UserError with the columns if a given one does not exist, or if none or several fit.
    """
    header = Header(columns, path)
    listed = header.listed
    for option, name in (
        ("text", user_columns.text),
        ("pair", user_columns.pair),
        ("label", user_columns.label if labelled else ""),
    ):
        header.require(name, option=option)
    label = (
        user_columns.label
        if user_columns.label in columns
        else _label(columns, user_columns, listed, numbers, labelled)
    )
    text, pair = (
        (user_columns.text, user_columns.pair)
        if user_columns.text
        else _texts(columns, user_columns.pair, label, listed)
    )
    if missing := [name for name, column in (("text", text), ("label", label or not labelled)) if not column]:
        raise header.missing(" or ".join(missing), _advice(columns, missing))
    if len({text, pair, label} - {""}) < len([name for name in (text, pair, label) if name]):
        raise UserError(
            f"{listed}; text, pair and label must be different columns (--text, --pair, --label).",
            code="unknown-column",
        )
    return TextColumns(text=text, pair=pair, label=label)


def _label(columns: Sequence[str], user_columns: TextColumns, listed: str, numbers: bool, labelled: bool) -> str:
    """Return the column of the label, "" if none. Raises UserError if it is required and several fit."""
    for tier in TIERS["number" if numbers else "class"]:
        candidates = [
            name
            for name in columns
            if name.strip().lower() in tier and name not in (user_columns.text, user_columns.pair)
        ]
        if len(candidates) == 1:
            return candidates[0]
        if candidates and labelled:
            raise UserError(
                f"{listed}; the label could be {' or '.join(map(repr, candidates))}: give --label NAME.",
                code="ambiguous-column",
            )
    return ""


def _texts(columns: Sequence[str], pair: str, label: str, listed: str) -> tuple[str, str]:
    """Return the columns of the text and its pair, "" if none. Raises UserError if several fit."""
    by_name = {name.strip().lower(): name for name in columns if name not in (pair, label)}
    if not pair:
        for first, second in PAIRS:
            if first in by_name and second in by_name:
                return by_name[first], by_name[second]
    candidates = [by_name[name] for name in ROLES["text"] if name in by_name]
    if not candidates and _DOCUMENT in by_name:
        candidates = [by_name[_DOCUMENT]]
    if not candidates and len(by_name) == 1:
        candidates = list(by_name.values())
    if len(candidates) > 1:
        raise UserError(
            f"{listed}; the text could be {' or '.join(map(repr, candidates))}: give --text NAME.",
            code="ambiguous-column",
        )
    return (candidates[0] if candidates else ""), pair


def _advice(columns: Sequence[str], missing: Sequence[str]) -> str:
    """Return advice on missing columns; for a file without a header it explains how to name columns."""
    options = {"text": "--text NAME (and --pair NAME for pairs)", "label": "--label NAME"}
    give = " and ".join(options[name] for name in missing)
    if any(name != f"column {number}" for number, name in enumerate(columns, 1)):
        return f": give {give}."
    return (
        f", for the file has no header: give {give}, where NAME is 'column 1' and so on; or write a first line with "
        "names such as text,label or sentence1,sentence2,label."
    )
