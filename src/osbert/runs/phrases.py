"""Phrases of a corpus, which are masked as a whole: from a list, by capital letters, or by a tagger of osbert's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from osbert.errors import UserError
from osbert.interop.opening import Opening
from osbert.reading.documents import DocumentOptions, read_input
from osbert.reading.inputs import OpenInput, Repairs, find_inputs
from osbert.runs.contract import Notice, Watch
from osbert.text.phrases import capitalised
from osbert.text.sentences import split

CAPITALS = "capitals"
LEAST = 2
"""Occurrences that a phrase must have which is found in the text."""
TOGETHER = 256
"""Sentences that are tagged at a time."""


def find_phrases(
    source: str, files: Sequence[Path | str], reading: DocumentOptions, *, opening: Opening, watch: Watch
) -> tuple[str, ...]:
    """Return the phrases of a source, sorted: a file with one in each line, "capitals", or the folder of a tag run.

    capitals: runs of capitalised words of the texts in `files`, but for the first word of a sentence. A run of `tag`
    tags the texts: its entities of several words, or its chunks, are the phrases. Phrases from the texts occur at least
    twice. Raises UserError for a missing file, a run that does not tag, and a source without phrases.
    """
    path = Path(source)
    if source == CAPITALS and not path.exists():
        found = _frequent(capitalised(_sentences(files, reading)))
    elif path.is_dir():
        watch(Notice(f"{path} tags the texts, to find the phrases in them."))
        found = _frequent(_tagged(path, _sentences(files, reading), opening))
    elif path.is_file():
        found = _listed(path)
    else:
        raise UserError(
            f"--phrases {source}: no such file. Give a file with a phrase in each line, the folder of a run of tag, or "
            f"{CAPITALS}.",
            code="missing-file",
        )
    if not found:
        raise UserError(f"--phrases {source} gives no phrases. Leave it out, or give another source.", code="no-data")
    watch(Notice(f"{len(found):,} phrases are units of masking."))
    return tuple(sorted(found))


def _listed(path: Path) -> set[str]:
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


def _sentences(files: Sequence[Path | str], reading: DocumentOptions) -> Iterator[str]:
    for source in find_inputs(files):
        for chunk in read_input(OpenInput(source, repairs=Repairs()), reading):
            for line in chunk.text.split("\n"):
                yield from (line[start:end] for start, end in split(line))


def _tagged(run: Path, sentences: Iterator[str], opening: Opening) -> Iterator[str]:
    """Yield the spans that a run marks in sentences. Raises UserError if it does not label words."""
    from osbert.inference.engine import load  # loads torch, which the other sources do not need

    engine = load(run, opening=opening)
    if engine.task is None or engine.task.form != "tokens":
        raise UserError(
            f"--phrases {run}: the run does not tag words. Give a run of osbert finetune tag.", code="invalid-value"
        )
    while some := list(islice(sentences, TOGETHER)):
        for prediction in engine.predict(some):
            yield from (one["text"] for one in prediction.as_dict()["prediction"])


def _frequent(phrases: Iterable[str]) -> set[str]:
    counts = Counter(phrase for phrase in phrases if len(phrase.split()) > 1)
    return {phrase for phrase, count in counts.items() if count >= LEAST}
