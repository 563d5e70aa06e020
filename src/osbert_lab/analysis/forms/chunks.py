"""Sentences with their chunks, in CoNLL-2000's columns: a word, its part of speech, and a tag B-, I- or O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from osbert.data.example import Example
from osbert.errors import Problems
from osbert.reading.form import decoding_error, open_text
from osbert.reading.tagged.rows import TaggedWords, read_columns
from osbert.terminal import format_count
from osbert_lab.analysis.forms.contract import DataForm, FileHead, Sampling
from osbert_lab.analysis.kinds.contract import PlacedWords
from osbert_lab.analysis.sample import Part, Sample, TextSample, draw_parts, place_words
from osbert_lab.analysis.tables import left_out, unusable_rows

COLUMNS = 3
TAG = re.compile("O|[BI]-(NP|VP|PP|ADJP|ADVP|SBAR|PRT|CONJP|INTJ|LST|UCP)")
"""The chunk tags of Tjong Kim Sang and Buchholz 2000, table 1."""

Placed = tuple[Example, PlacedWords]


class ChunkForm(DataForm):
    """Sentences to train probes of chunks on, and sentences to score them on."""

    position = 2
    files = "chunks (columns of CoNLL-2000)"

    def knows(self, file: FileHead) -> bool:
        """Return whether most lines have three columns with a chunk tag in the last."""
        rows = [cells for line in file.lines if (cells := line.split())]
        return 2 * sum(len(cells) == COLUMNS and bool(TAG.fullmatch(cells[-1])) for cells in rows) > len(rows)

    def sample(self, files: Sequence[Path], sampling: Sampling) -> TextSample:
        """Return a sample of the sentences of some files, in two parts: for training, and for scoring."""
        problems = unusable_rows("sentences")
        rng = np.random.default_rng([sampling.options.seed, 2])
        encoding = sampling.reading.encoding

        def sentences(paths: Sequence[Path]) -> Iterator[tuple[Path, TaggedWords]]:
            for path in paths:
                yield from ((path, sentence) for sentence in _read(path, encoding, problems))

        placed: list[Placed] = []
        read = 0
        for part, drawn, count in draw_parts(files, sentences, sampling.options.trees, rng):
            read += count
            placements = (_place_sentence(path, rows, part, sampling, problems) for path, rows in drawn)
            placed += [placement for placement in placements if placement]
        if sampling.reading.errors == "strict":
            problems.stop_if_any()
        trained = sum(words.part == "select" for _, words in placed)
        note = (
            f"{format_count(len(placed), 'sentence')} with chunks of {read:,} read: probes trained on {trained:,} and "
            f"scored on {len(placed) - trained:,}; {problems.count:,} left out"
        )
        return TextSample(
            examples=[example for example, _ in placed],
            labelled=[words for _, words in placed],
            read=read,
            short=problems.count,
            notes=[note, *left_out(problems)] if read else [],
        )

    def sentences(self, sample: Sample) -> Sequence[Example]:
        """Return the sentences of a sample as sequences for the model."""
        assert isinstance(sample, TextSample)
        return sample.examples


def _read(path: Path, encoding: str, problems: Problems) -> Iterator[TaggedWords]:
    try:
        with open_text(path, encoding) as lines:
            yield from read_columns(lines, name=str(path), column=0, labelled=True, problems=problems)
    except UnicodeError as error:
        raise decoding_error(path, encoding) from error


def _place_sentence(path: Path, rows: TaggedWords, part: Part, sampling: Sampling, problems: Problems) -> Placed | None:
    for tag, line in zip(rows.tags or (), rows.lines, strict=False):
        if not TAG.fullmatch(tag):
            problems.add(f"{path}, line {line}: {tag!r} is not a chunk tag of CoNLL-2000.", code="unusable-row")
            return None
    placement = place_words(rows.words, f"{path}, line {rows.lines[0]}", sampling.packer, problems)
    if not placement:
        return None
    example, tokens = placement
    return example, PlacedWords(words=rows.words, labels=rows.tags or (), tokens=tokens, part=part)
