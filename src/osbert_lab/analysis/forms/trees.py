"""Sentences with their dependency trees, in CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from osbert.data.example import Example
from osbert.errors import Problems
from osbert.terminal import format_count
from osbert_lab.analysis.forms.contract import DataForm, FileHead, Sampling
from osbert_lab.analysis.sample import Sample, TextSample, draw_parts, place_tree
from osbert_lab.analysis.tables import left_out, unusable_rows
from osbert_lab.analysis.tree_files import SUFFIX, Tree, is_trees, read_trees


class TreeForm(DataForm):
    """Trees to choose heads on, and trees to score them on."""

    position = 1
    files = f"trees ({SUFFIX})"

    def knows(self, file: FileHead) -> bool:
        """Return whether the name has a suffix of CoNLL-U."""
        return is_trees(file.path)

    def sample(self, files: Sequence[Path], sampling: Sampling) -> TextSample:
        """Return a sample of the trees of some files, in two parts: to choose heads on, and to score them on."""
        problems = unusable_rows("trees")
        rng = np.random.default_rng([sampling.options.seed, 1])
        placed, read, unplaced = [], 0, 0

        def trees(paths: Sequence[Path]) -> Iterator[Tree]:
            for path in paths:
                yield from read_trees(path, problems, encoding=sampling.reading.encoding)

        for part, drawn, count in draw_parts(files, trees, sampling.options.trees, rng):
            placements = [place_tree(tree, sampling.packer, problems, part) for tree in drawn]
            placed += [placement for placement in placements if placement]
            unplaced += placements.count(None)
            read += count
        if sampling.reading.errors == "strict":
            problems.stop_if_any()
        return TextSample(
            examples=[example for example, _ in placed],
            trees=[tree for _, tree in placed],
            read=(whole := read + problems.count - unplaced),
            short=problems.count,
            notes=_notes([tree.part for _, tree in placed], whole, problems),
        )

    def sentences(self, sample: Sample) -> Sequence[Example]:
        """Return the sentences of the trees."""
        assert isinstance(sample, TextSample)
        return sample.examples


def _notes(parts: Sequence[str], read: int, problems: Problems) -> list[str]:
    if not read:
        return []
    chosen = parts.count("select")
    return [
        f"{format_count(len(parts), 'tree')} of {read:,} read: heads chosen on {chosen:,} and scored on "
        f"{len(parts) - chosen:,}; {problems.count:,} left out",
        *left_out(problems),
    ]
