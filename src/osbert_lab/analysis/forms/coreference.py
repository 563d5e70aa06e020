"""Texts with coreference links: CoNLL-2012's columns (LitBank), and GAP's table of ambiguous pronouns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from osbert.errors import Problems
from osbert.terminal import format_count
from osbert_lab.analysis.coreference_files import BEGIN, GAP, LinkedText, read_documents, read_gap
from osbert_lab.analysis.forms.contract import DataForm, FileHead, Sampling
from osbert_lab.analysis.sample import ItemSample, LinkedItem, draw, draw_parts, place_words
from osbert_lab.analysis.tables import left_out, unusable_rows


class CoreferenceForm(DataForm):
    """Texts to choose heads on and texts to score them on; each document or GAP row is in one part only."""

    position = 2
    files = "coreference (CoNLL-2012's columns, or GAP's table)"

    def knows(self, file: FileHead) -> bool:
        """Return whether a file begins like a CoNLL-2012 document, or has GAP's columns."""
        return _is_document(file) or {*GAP} <= {*(file.lines[0].split("\t") if file.lines else ())}

    def sample(self, files: Sequence[Path], sampling: Sampling) -> ItemSample[LinkedItem]:
        """Return a sample of the texts with links, from both kinds of files."""
        problems = unusable_rows("texts")
        encoding = sampling.reading.encoding
        items: list[LinkedItem] = []
        read = tokens = crossing = links = 0
        documents = [path for path in files if _is_document(FileHead(path))]
        for turn, paths in enumerate((documents, [path for path in files if path not in documents])):
            rng = np.random.default_rng([sampling.options.seed, 5, turn])

            def lists(given: Sequence[Path], turn: int = turn) -> Iterator[list[LinkedText]]:
                for path in given:
                    yield from (read_gap if turn else read_documents)(path, problems, encoding=encoding)

            for part, drawn, _ in draw_parts(paths, lists, sampling.options.trees, rng) if paths else ():
                texts, count = draw(
                    (text for texts in drawn for text in texts if text.links), sampling.options.trees, rng
                )
                read += count
                for text in texts:
                    if placed := place_words(text.words, text.place, sampling.packer, problems):
                        items.append(LinkedItem(text=text, part=part))
                        tokens += len(placed[0])
                        crossing += text.crossing
                        links += len(text.links)
        if sampling.reading.errors == "strict":
            problems.stop_if_any()
        item_sample = ItemSample(items=items, read=read, tokens=tokens)
        return replace(item_sample, notes=_notes(items, read, (links, crossing), problems))


def _is_document(file: FileHead) -> bool:
    return any(line.startswith(BEGIN) for line in file.lines[:1])


def _notes(items: Sequence[LinkedItem], read: int, links: tuple[int, int], problems: Problems) -> list[str]:
    if not read:
        return []
    chosen = sum(item.part == "select" for item in items)
    antecedents, crossing = links
    return [
        f"{format_count(len(items), 'text')} of {read:,} with mentions of one thing read: heads "
        f"chosen on {chosen:,} and "
        f"scored on {len(items) - chosen:,}; {antecedents:,} mentions have an antecedent in their "
        f"text, {crossing:,} more "
        f"only before it; {problems.count:,} left out",
        *left_out(problems),
    ]
