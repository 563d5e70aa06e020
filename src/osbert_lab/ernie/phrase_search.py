"""Phrases of a corpus, masked as a whole: from a list, its own statistics, by capitals, a tagger or a function."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from osbert.corpus.state import input_facts
from osbert.errors import UserError
from osbert.files import read_sealed, write_sealed, write_text
from osbert.interop.opening import Opening
from osbert.reading.documents import DocumentOptions, read_input
from osbert.reading.inputs import Input, OpenInput, Repairs
from osbert.remote import local_copy
from osbert.runs.contract import Notice, Watch
from osbert.text.sentences import split
from osbert_lab.ernie.phrase_table import PhraseRow, find_phrases, table_lines
from osbert_lab.ernie.phrases import find_capitalised

CAPITALS = "capitals"
FREQUENT = "frequent"
TABLE = ".phrases.tsv"
"""File in the folder of a corpus: the phrases of its own statistics, with what told that they are some."""
KEPT = ".phrases.json"
"""File in the folder of a corpus: the phrases of its texts, with what they depend on."""
LEAST = 2
"""Occurrences that a phrase must have which is found in the text."""
TOGETHER = 256
"""Sentences that are tagged at a time."""


@dataclass(frozen=True, kw_only=True)
class PhraseSearch:
    """The search for phrases in a source: a file with one in each line, "capitals", "frequent", a tag run's folder,
    or a function.

    frequent: runs of words that occur often, together and beside many others (phrase_table.py), in any language.
    capitals: runs of capitalised words of the texts in `inputs`, but for the first word of a sentence. A run of `tag`
    tags the texts: its entities of several words, or its chunks, are the phrases. A function, "module:function", gets
    each sentence and returns its phrases. Phrases from the texts occur at least twice.
    """

    source: str
    inputs: Sequence[Input]
    reading: DocumentOptions
    opening: Opening
    watch: Watch

    def find(self, folder: Path) -> tuple[str, ...]:
        """Return the phrases, sorted: those that `keep` wrote into the folder of the corpus, or new ones.

        Raises UserError for a missing file, a run that does not tag, a function that `opening` does not trust or that
        is not there, and a source without phrases.
        """
        stored_phrases = self._read_stored(folder)
        if stored_phrases is not None:
            return stored_phrases
        path = self._path
        if self._is_list:
            phrases = _read_list(path)
        elif path.is_dir():
            self.watch(Notice(f"Finding the phrases of the texts with {path}."))
            phrases = _frequent(_tag_phrases(path, self._sentences(), self.opening))
        elif self.source == FREQUENT:
            phrases = {row.phrase for row in self._table}
        elif self.source == CAPITALS:
            phrases = _frequent(find_capitalised(self._sentences()))
        elif _is_function(self.source):
            finder = _function(self.source, self.opening)
            phrases = _frequent(phrase for sentence in self._sentences() for phrase in finder(sentence))
        else:
            raise UserError(
                f"--phrases {self.source}: there is no such file. Give a file with one phrase per line, the folder "
                f"of a run of tag, {CAPITALS}, {FREQUENT}, or module:function.",
                code="missing-file",
            )
        if not phrases:
            raise UserError(
                f"--phrases {self.source} finds no phrases. Remove it, or choose another source.", code="no-data"
            )
        self.watch(Notice(f"{len(phrases):,} phrases are masked as units."))
        return tuple(sorted(phrases))

    def keep(self, folder: Path, phrases: Sequence[str]) -> None:
        """Write the phrases of the texts into the folder of the corpus, so that the same command need not read them."""
        if not self._is_list and self._read_stored(folder) is None:
            folder.mkdir(exist_ok=True)
            write_sealed(folder / KEPT, {"facts": self._facts, "phrases": list(phrases)})
            if self.source == FREQUENT:
                write_text(folder / TABLE, "".join(f"{line}\n" for line in table_lines(self._table)))

    def _read_stored(self, folder: Path) -> tuple[str, ...] | None:
        """Return the phrases that `keep` wrote for the same texts and source; None if there are none."""
        if self._is_list or not (folder / KEPT).is_file():
            return None
        try:
            content = read_sealed(folder / KEPT)
        except ValueError:  # damaged: they are found again
            return None
        return tuple(content["phrases"]) if content["facts"] == self._facts else None

    @cached_property
    def _path(self) -> Path:
        return local_copy(self.source)

    @cached_property
    def _table(self) -> list[PhraseRow]:
        self.watch(Notice("Counting the runs of words of the texts."))
        return find_phrases(self._sentences(), remark=lambda text: self.watch(Notice(text)))

    @property
    def _is_list(self) -> bool:
        return self._path.is_file()

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """Return what the phrases of the texts depend on."""
        from osbert.interop.folder import open_folder  # loads torch, which the other sources do not need

        return {
            "source": open_folder(self._path, self.opening).fingerprint if self._path.is_dir() else self.source,
            "inputs": [{**facts, "name": Path(facts["name"]).name} for facts in input_facts(self.inputs)],
            "reading": json.loads(json.dumps(asdict(self.reading))),
        }

    def _sentences(self) -> Iterator[str]:
        for source in self.inputs:
            for chunk in read_input(OpenInput(source, repairs=Repairs()), self.reading):
                for line in chunk.text.split("\n"):
                    yield from (line[start:end] for start, end in split(line))


def _read_list(path: Path) -> set[str]:
    """Return the lines of a list of phrases. Raises UserError with the line that is not UTF-8."""
    content = path.read_bytes()
    try:
        return {line.strip() for line in content.decode("utf-8").removeprefix("\ufeff").splitlines()} - {""}
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"--phrases {path}, line {line:,}: not UTF-8 (byte {content[error.start]:#x}). Convert the list to UTF-8.",
            code="wrong-encoding",
        ) from None


def _tag_phrases(run: Path, sentences: Iterator[str], opening: Opening) -> Iterator[str]:
    """Yield the spans that a run marks in sentences. Raises UserError if it does not label words."""
    from osbert.inference.engine import load  # loads torch, which the other sources do not need

    engine = load(run, opening=opening)
    if engine.task is None or engine.task.form != "tokens":
        raise UserError(
            f"--phrases {run}: this run does not tag words. Give a run of osbert finetune tag.", code="invalid-value"
        )
    while some := list(islice(sentences, TOGETHER)):
        for prediction in engine.predict(some):
            yield from (span["text"] for span in prediction.as_dict()["prediction"])


def _is_function(source: str) -> bool:
    """Return whether a source is the name of a function.

    >>> _is_function("mypackage.spans:noun_phrases"), _is_function("list.txt"), _is_function("C:/list.txt")
    (True, False, False)
    """
    module, colon, name = source.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), name))


def _function(source: str, opening: Opening) -> Callable[[str], Iterable[str]]:
    """Return the function "module:function". Raises UserError if it is not trusted, or not there."""
    if not opening.trust:
        raise UserError(
            f"--phrases {source} is code from outside osbert. If you trust its author, add --trust (in Python "
            "trust=True).",
            code="untrusted-code",
        )
    module, _, name = source.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        if callable(function):
            return partial(_phrases_of, function, source)
        problem = f"{module}.{name} is not a function."
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        problem = f"no module named '{error.name}'. Is it on PYTHONPATH?"
    except AttributeError:
        problem = f"{module} has no '{name}'."
    raise UserError(f"--phrases {source}: {problem}", code="component-not-importable")


def _phrases_of(function: Callable[[str], Iterable[str]], source: str, text: str) -> Iterable[str]:
    """Call a user's function on a text and return its phrases. Raises UserError if it does not return a list."""
    phrases = function(text)
    if isinstance(phrases, str) or not isinstance(phrases, Iterable):
        raise UserError(
            f"--phrases {source} returned {phrases!r:.60} for a text. It must return a list of phrases.",
            code="invalid-value",
        )
    return phrases


def _frequent(phrases: Iterable[str]) -> set[str]:
    counts = Counter(phrase for phrase in phrases if len(phrase.split()) > 1)
    return {phrase for phrase, count in counts.items() if count >= LEAST}
