"""Tables with a word a row: its sentence, perhaps in the sentence's first row only, the word and its tag.

Such are Kaggle's NER data (Sentence #,Word,POS,Tag) and the long form sentence_id,word,tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from osbert.errors import Problems, UserError
from osbert.reading.data_file import DataFile
from osbert.reading.form import TableReading, open_text, plain_suffix
from osbert.reading.table import Table, open_table
from osbert.reading.tagged.rows import TaggedWords

_SENTENCE = re.compile(r"sent(ence)?s?[ _-]*(#|ids?|idx|index|no\.?|nr|num|number)?", re.IGNORECASE)
_WORD = re.compile("words?|tokens?", re.IGNORECASE)
_TAG = re.compile("tags?|ner[ _-]?tags?|ner|iob|bio|labels?", re.IGNORECASE)


class WordColumns(NamedTuple):
    """The names of the columns of a table with a word a row; `tag` is "" if there is none."""

    sentence: str
    word: str
    tag: str

    def describe(self) -> str:
        """Describe which column is what."""
        tag = f", tags from '{self.tag}'" if self.tag else ""
        return f"a word a row: sentences from '{self.sentence}', words from '{self.word}'{tag}"


def find_word_columns(names: Sequence[str], *, column: int = 0) -> WordColumns | None:
    """Return which columns have sentences, words and tags; None if the names do not say so.

    `column`: the number of the tags' column, from 1, negative from the end; 0 for the one with a usual name.

    >>> find_word_columns(["Sentence #", "Word", "POS", "Tag"])
    WordColumns(sentence='Sentence #', word='Word', tag='Tag')
    """
    usual = [[name for name in names if kind.fullmatch(name.strip())] for kind in (_SENTENCE, _WORD, _TAG)]
    if any(len(matches) != 1 for matches in usual[:2]):
        return None
    if column:
        tags = [name for number, name in enumerate(names, 1) if column in (number, number - len(names) - 1)]
    else:
        tags = usual[2]
    return WordColumns(usual[0][0], usual[1][0], tags[0] if len(tags) == 1 else "")


def open_word_table(file: DataFile, encoding: str, *, column: int = 0, labelled: bool) -> Table | None:
    """Return a delimited file as a table if its header names sentences and words; None if it does not.

    `column` is as for `find_word_columns`. Raises UserError for a .csv with other columns that must be `labelled`.
    """
    suffix = plain_suffix(file.path)
    if suffix not in (".csv", ".tsv", ".tab"):
        return None
    first = file.first_text.partition("\n")[0]
    headers = [[cell.strip(' "\r') for cell in first.split(delimiter)] for delimiter in ",;\t|"]
    word_columns = next(filter(None, (find_word_columns(names, column=column) for names in headers)), None)
    if word_columns and (word_columns.tag or not labelled):
        return open_table(file, TableReading(encoding=encoding, header="yes"))
    columns = max(headers[:2], key=len)
    if labelled and suffix == ".csv" and "\t" not in first and len(columns) > 1 and all(columns):
        with open_text(file, encoding):  # raises UserError if it is no text
            pass
        raise UserError(
            f"{file.path} has the columns {', '.join(map(repr, columns))}, which are none of tagged words. Write a row "
            "for each word, with the columns sentence_id,word,tag; or a word and its tag in each line, separated by a "
            "tab, and a blank line after each sentence, as .conll.",
            code="unknown-column",
        )
    return None


def read_word_rows(table: Table, columns: WordColumns, problems: Problems) -> Iterator[TaggedWords]:
    """Yield the sentences of a table; one goes on in rows with its own number or none.

    Rows without a word, and sentences that are in two parts, go to `problems`.
    """
    sentence, number, numbers = TaggedWords(), None, set[str]()
    for row in table.rows(problems):
        word, tag, called = (row.values.get(name, "").strip() for name in (columns.word, columns.tag, columns.sentence))
        if number is None or called not in ("", number):
            if called in numbers:
                problems.add(
                    f"{table.place(row.line)}: the sentence {called!r} begins again, after another one. Sort the rows "
                    "by sentence, or give each sentence a number of its own.",
                    code="unusable-row",
                )
            if sentence.words:
                yield sentence
            sentence, number = TaggedWords(tags=[] if columns.tag else None), called
            numbers.add(called)
        if not word:
            problems.add(
                f"{table.place(row.line)}: the word is empty. Write one, or remove the row.", code="empty-text"
            )
            continue
        sentence.words.append(word)
        sentence.lines.append(row.line)
        if sentence.tags is not None:
            sentence.tags.append(tag)
    if sentence.words:
        yield sentence
