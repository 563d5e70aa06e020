"""What of a file or a folder an analysis can read: files of text, and of dependency trees."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from osbert.analysis.sample import TextSample, draw, place_tree, text_sample
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.reading.documents import DocumentOptions, read_chunks
from osbert.reading.inputs import KNOWN, kind_of
from osbert.reading.splits import USUAL
from osbert.reading.trees import SUFFIX, Tree, is_trees, read_trees
from osbert.runs.analyse.settings import AnalysisOptions

Part = Literal["select", "score"]
PARTS: dict[Part, tuple[str, ...]] = {"select": USUAL["train"], "score": (*USUAL["dev"], *USUAL["test"])}
"""The words in the names of the files of each part."""
EXAMPLES = 10
"""Most trees that are left out and named."""


@dataclass(frozen=True, kw_only=True)
class AnalysisFiles:
    """The files of the data by what they hold; those of hidden names are left out."""

    texts: Sequence[Path]
    trees: Sequence[Path]

    @classmethod
    def find(cls, path: Path) -> AnalysisFiles:
        """Return the files that a file or a folder stands for. Raises UserError where none can be read."""
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder.", code="missing-file")
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        files = [one for one in inside if one.is_file() and not one.name.startswith(".")]
        trees = [one for one in files if is_trees(one)]
        texts = [one for one in files if not is_trees(one) and kind_of(one.name)]
        if not trees and not texts:
            raise UserError(f"{path} holds no trees ({SUFFIX}) and no text ({KNOWN}).", code="wrong-format")
        return cls(texts=texts, trees=trees)

    def parts(self) -> dict[Part, list[Path]] | None:
        """Return the files of trees to choose heads on, called train, and to score them on, called dev or test.

        None where the name of one says neither, or both: then all trees together are halved.
        """
        found: dict[Part, list[Path]] = {
            part: [path for path in self.trees if {*words} & {*re.findall("[a-z]+", path.name.lower())}]
            for part, words in PARTS.items()
        }
        once = sorted(path for paths in found.values() for path in paths) == sorted(self.trees)
        return found if all(found.values()) and once else None


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How files are sampled, for one model."""

    packer: Packer
    options: AnalysisOptions
    reading: DocumentOptions

    def texts(self, files: Sequence[Path]) -> TextSample:
        """Return a sample of the documents of some files."""
        packer = Packer(tokenizer=self.packer.tokenizer, length=self.options.length)
        return text_sample(
            self._documents(files),
            packer,
            count=self.options.texts,
            shortest=self.options.shortest,
            rng=np.random.default_rng([self.options.seed, 0]),
        )

    def _documents(self, files: Sequence[Path]) -> Iterator[str]:
        """Yield the text of each document; of one that comes in several chunks each is one."""
        if not files:
            return
        how = self.reading
        chunks = read_chunks(files, documents=how.documents, field=how.field, encoding=how.encoding, errors=how.errors)
        yield from (chunk.text for chunk in chunks)

    def trees(self, files: AnalysisFiles) -> TextSample:
        """Return a sample of the trees of some files: those to choose on, then those to score.

        Raises UserError that lists every tree that is none, or that the model cannot read, unless the reading leaves
        such out (errors "replace").
        """
        problems = Problems(heading="These trees cannot be used (--errors replace leaves them out)", shown=EXAMPLES)
        rng = np.random.default_rng([self.options.seed, 1])
        placed, read, unplaced = [], 0, 0
        for part, trees, count in self._parts(files, problems, rng):
            found = [place_tree(tree, self.packer, problems, part) for tree in trees]
            placed += [one for one in found if one]
            unplaced += found.count(None)
            read += count
        if self.reading.errors == "strict":
            problems.stop_if_any()
        notes = [f"left out: {message}" for message in problems.messages]
        return TextSample(
            examples=[example for example, _ in placed],
            trees=[tree for _, tree in placed],
            read=read + problems.count - unplaced,
            short=problems.count,
            notes=notes,
        )

    def sentences(self, trees: TextSample) -> TextSample:
        """Return a sample of the sentences of trees, whole ones, for data without other texts."""
        options = self.options
        fitting = [one for one in trees.examples if len(one) >= options.shortest]
        drawn, _ = draw(fitting, options.texts, np.random.default_rng([options.seed, 0]))
        read = len(trees.examples)
        note = "there are no other texts: the sentences of the trees are read as texts"
        return TextSample(examples=drawn, read=read, short=read - len(fitting), notes=[note] if drawn else [])

    def _parts(
        self, files: AnalysisFiles, problems: Problems, rng: np.random.Generator
    ) -> Iterator[tuple[Part, list[Tree], int]]:
        """Yield the trees of each part, and how many there were to sample from."""
        most, parts = self.options.trees, files.parts()
        if parts:
            for part, paths in parts.items():
                yield part, *draw(self._read(paths, problems), most, rng)
            return
        drawn, read = draw(self._read(files.trees, problems), 2 * most, rng)
        chosen = {*rng.permutation(len(drawn))[: len(drawn) // 2].tolist()}
        yield "select", [tree for place, tree in enumerate(drawn) if place in chosen], len(chosen)
        yield "score", [tree for place, tree in enumerate(drawn) if place not in chosen], read - len(chosen)

    def _read(self, paths: Iterable[Path], problems: Problems) -> Iterator[Tree]:
        for path in paths:
            yield from read_trees(path, problems, encoding=self.reading.encoding)
