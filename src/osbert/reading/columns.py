"""Which column of a table is what: for every role the one that the user names, else one with a usual name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from osbert.errors import UserError, nearest

PASSAGES = ("context", "premise", "article", "passage", "story", "dialogue")
"""Names of a column with a text about which there is a question."""
ROLES: Mapping[str, tuple[str, ...]] = {
    # A text, or the texts of a pair (PAIRS), with a class or a number (TIERS), or with several labels.
    "text": ("text", "sentence", "review", "content", "comment", "document", "message", "tweet", "body", "question"),
    "labels": ("labels", "tags", "categories", "classes", "topics", "genres", "emotions", "targets"),
    # Of a pair of texts: how alike they are, from few to much; and whether they are alike, 0 for not at all.
    "similarity": ("score", "similarity", "similarity_score", "cosine"),
    "alike": ("label", "relevance", "grade", "is_duplicate"),
    # What a teacher scores the texts of a row: as a list, or the differences from the first one's score.
    "teacher": ("scores", "score", "teacher_scores", "teacher_score", "margins", "margin"),
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
    "context": ("sent1", "ctx", *PASSAGES, "question", "stem", "sentence", "text"),
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
    "negative": ("negative", "negatives", "neg", "hard_negative", "hard_negatives", "hard_neg"),
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


_CONTAINERS = ("data", "rows", "examples", "items", "records", "results", "hits", "utterances", "train")
"""Keys, in lower case, under which programs write all rows of a file."""
SHOWN = 30
"""Most columns that a message names: a table that lies on its side has one for each row."""
_NUMBERS = frozenset([*CLASS_HEADINGS, *chain.from_iterable(TIERS["number"]), *ROLES["similarity"], *ROLES["alike"]])
"""Usual names of columns with a class or a number, in lower case."""
_NUMBERED = re.compile(r"(hard[ _-]?)?(neg|negative)[ _-]?\d+", re.IGNORECASE)


def headings(*roles: str) -> tuple[str, ...]:
    """Return the usual names of some roles: a first line that contains one of these is a header."""
    return tuple(name for role in roles for name in ROLES[role])


class Header:
    """The column names of a table, to choose from; `called` is the name of the table in messages."""

    def __init__(self, columns: Sequence[str], called: str) -> None:
        """Use these columns; of names that differ only in case, the first one wins."""
        self.columns = columns
        self.by_name = {name.strip().lower(): name for name in reversed(columns)}
        more = f" and {len(columns) - SHOWN:,} more" if len(columns) > SHOWN else ""
        self.listed = f"{called} has the columns {', '.join(map(repr, columns[:SHOWN]))}{more}"

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

    def find_negatives(self, names: Sequence[str] = (), *, but: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the columns of negatives: those that the user named, else all with a number, else one; () for none.

        >>> Header(["query", "positive", "negative_1", "negative_2"], "rows.csv").find_negatives()
        ('negative_1', 'negative_2')
        """
        if names:
            return tuple(name for name in names if name in self.columns)
        numbered = tuple(name for name in self.columns if _NUMBERED.fullmatch(name.strip()) and name not in but)
        return numbered or tuple(filter(None, [self.find("negative", but=but)]))

    def find_scores(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns with a teacher's scores of the texts in the columns `names`, () for none.

        >>> Header(["query", "pos", "neg", "pos_scores", "neg_scores"], "rows.jsonl").find_scores(["pos", "neg"])
        ('pos_scores', 'neg_scores')
        """
        usual = [(f"{name.strip().lower()}_score", f"{name.strip().lower()}_scores") for name in names]
        columns = [next((self.by_name[name] for name in pair if name in self.by_name), "") for pair in usual]
        return tuple(columns) if all(columns) else tuple(filter(None, [self.find("teacher", but=names)]))

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


AlikeRows = Literal["texts", "pairs", "graded", "judged", "distilled"]
"""What a row of texts says: nothing more; that its two texts are alike, perhaps with texts that are not; how alike they
are, by a number; whether they are, by a number above 0; or a teacher's scores of one that is and of others."""


@dataclass(frozen=True, kw_only=True)
class AlikeColumns(TextColumns):
    """The chosen columns of texts that are alike or not: `label` has the score or the judgement, if rows have one.

    With a teacher's scores it may be several names with commas between them, `labels`.
    """

    rows: AlikeRows
    negatives: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the columns with numbers."""
        several = self.rows == "distilled" and self.label.count(",") == len(self.negatives)
        return tuple(self.label.split(",")) if several else (self.label,)

    def describe(self, *, labelled: bool = True) -> str:
        texts = f"'{self.text}' and '{self.pair}'"
        if self.rows == "texts":
            return f"text from '{self.text}': texts, each shown twice: dropout makes the difference"
        if self.rows == "graded":
            return f"pairs from {texts}, as alike as the number in '{self.label}' says"
        if self.rows == "judged":
            return (
                f"pairs from {texts}, alike where '{self.label}' is above 0; the others are negatives of '{self.text}'"
            )
        if self.rows == "distilled":
            return f"pairs from {texts}, a teacher's scores from {_list(self.labels)}"
        return f"pairs from {texts}: pairs of alike texts"


ALIKE_FORMS = (
    "one text; two alike texts; a text, one like it (positive) and one or several that are not (negative, or "
    "negative_1, negative_2, ...), perhaps with a teacher's scores; two texts and their score; or query, document and "
    "label"
)
"""The forms of rows that are recognised, in words."""


def choose_alike(
    columns: Sequence[str],
    *,
    user_columns: TextColumns,
    negatives: Sequence[str] = (),
    rows: AlikeRows | Literal["auto"] = "auto",
    path: str,
) -> AlikeColumns:
    """Return what to read of texts that are alike or not: the columns that the user named, else those of usual names.

    Raises UserError with the columns and the forms that can be read if one does not exist, if several could be meant,
    or if `rows` needs a column that there is not.
    """
    header = Header(columns, path)
    labels = [user_columns.label] if user_columns.label in columns else user_columns.label.split(",")
    for option, names in (("label", labels), ("negative", negatives)):
        for name in names:
            header.require(name, option=option)
    negatives = header.find_negatives(negatives, but=(user_columns.text, user_columns.pair))
    text, pair = _alike_texts(header, user_columns, negatives, path)
    role, label = _judgement(header, user_columns.label, (text, pair, *negatives))
    if negatives and rows in ("auto", "distilled"):
        label = user_columns.label or ",".join(header.find_scores((pair, *negatives)))
        role = "distilled" if label else "pairs"
    chosen = rows if rows != "auto" else role if pair else "texts"
    if problem := _misfit(chosen, pair, label, negatives):
        raise UserError(f"{header.listed}; {problem} Rows can be: {ALIKE_FORMS}.", code="unknown-column")
    return AlikeColumns(
        text=text,
        pair="" if chosen == "texts" else pair,
        label=label if chosen in ("graded", "judged", "distilled") else "",
        rows=chosen,
        negatives=tuple(negatives) if chosen in ("pairs", "distilled") else (),
    )


def _alike_texts(header: Header, user_columns: TextColumns, negatives: Sequence[str], path: str) -> tuple[str, str]:
    """Return the columns of the two texts; "" for the second of single texts. Raises UserError if several fit."""
    names = [name for name in header.columns if name not in negatives]
    named = user_columns.text or user_columns.pair
    if not named and (first := header.find("query", but=negatives)):
        # Prompts and roles depend on the order: a column of queries comes first.
        second = header.find("positive", but=(first, *negatives))
        others = [name for name in names if name != first and not is_label(name)]
        if second or len(others) == 1:
            return first, second or others[0]
    try:
        text_columns = choose(names, user_columns=user_columns, path=path, labelled=False)
    except UserError as error:
        if named or len(names) != 2:
            raise UserError(f"{error} Rows can be: {ALIKE_FORMS}.", code=error.code) from error
        return names[0], names[1]
    if len(names) == 2 and not (named or text_columns.pair or text_columns.label):
        return text_columns.text, next(name for name in names if name != text_columns.text)
    return text_columns.text, text_columns.pair


def _judgement(header: Header, named: str, but: Sequence[str]) -> tuple[AlikeRows, str]:
    """Return what rows with two texts say, and the column of their score or label, "" if there is none."""
    score, label = (header.find(role, but=but) for role in ("similarity", "alike"))
    if named:
        return ("judged" if named.strip().lower() in ROLES["alike"] else "graded"), named
    return ("graded", score) if score else ("judged", label) if label else ("pairs", "")


def _misfit(rows: AlikeRows, pair: str, label: str, negatives: Sequence[str]) -> str:
    """Return why rows cannot be read as chosen, "" if they can."""
    if negatives and not pair:
        return f"{_list(negatives)} has negatives, but there is no second text like the first: give --pair NAME."
    if rows != "texts" and not pair:
        return f"rows = {rows} needs a second text: give --pair NAME."
    if rows == "distilled" and not negatives:
        return "rows = distilled needs a column with texts that are not like the first: give --negative NAME."
    if rows in ("graded", "judged", "distilled") and not label:
        return f"rows = {rows} needs a column with numbers: give --label NAME."
    return ""


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def is_label(name: str) -> bool:
    """Return whether a name is usual for a column with classes or numbers."""
    return name.strip().lower() in _NUMBERS


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
    text, pair, label = user_columns.text, user_columns.pair, user_columns.label
    if label not in columns:
        label = _label(columns, user_columns, listed, numbers, labelled)
    if not text:
        text, pair = _texts(columns, pair, label, listed)
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
    others = [name for name in columns if name not in (pair, label)]
    by_name = {name.strip().lower(): name for name in reversed(others)}
    if not pair:
        for first, second in PAIRS:
            if first in by_name and second in by_name:
                return by_name[first], by_name[second]
    candidates = [name for usual in ROLES["text"] for name in others if name.strip().lower() == usual]
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
    if len(columns) == 1 and missing == ["label"]:
        return ", the only one: give --delimiter, or write labels in a second column, below a line such as text,label."
    if inner := next((name for name in columns if name.lower() in _CONTAINERS), ""):
        return f": give {give}; or, if the rows are in '{inner}', write them alone, as a JSON array."
    if any(name != f"column {number}" for number, name in enumerate(columns, 1)):
        return f": give {give}."
    return (
        f", for the file has no header: give {give}, where NAME is 'column 1' and so on; or write a first line with "
        "names such as text,label or sentence1,sentence2,label."
    )
