"""Tests of words' vectors in a table: similarity and analogies, for static vectors and for encoders alike.

The vector of a word is that of the word alone, without a text: the mean over all layers, with the embeddings. Words
that the tokenizer cuts into several pieces have none: a mean of pieces would test their spelling, and solve analogies
such as "quick", "quickly" without having learnt anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from osbert.files import read_own, write_sealed
from osbert.text.file_tokenizer import WORD_STARTS, AnyTokenizer, special_ids
from osbert.training.run_folder import RunFolder
from osbert_lab.papers.word_similarity import WordScore, WordTable, read_pairs, read_questions

FOLDER = "words"
SCORES = "words.json"


@dataclass(frozen=True, kw_only=True)
class WordTest:
    """A column of a table that needs no fine-tuning, from a file in the folder `words` of the data."""

    name: str
    file: str
    """A pattern of the file's name."""
    kind: Literal["similarity", "analogies"]

    def find(self, data: Path) -> list[Path]:
        """Return the file as a list; [] if it is missing."""
        return sorted((data / FOLDER).glob(self.file))[:1]

    def words(self, data: Path) -> Iterator[str]:
        """Yield the words of the file. Raises UserError for unusable lines."""
        [path] = self.find(data)
        if self.kind == "similarity":
            yield from (word for first, second, _ in read_pairs(path) for word in (first, second))
        else:
            yield from itertools.chain(*_analogies(path))

    def score(self, table: WordTable, data: Path) -> WordScore:
        """Return the score of a table of vectors."""
        [path] = self.find(data)
        word_score = (
            table.similarity(read_pairs(path)) if self.kind == "similarity" else table.analogies(_analogies(path))
        )
        return replace(word_score, score=float(word_score.score))


def _analogies(path: Path) -> list[list[str]]:
    return [*itertools.chain(*read_questions(path).values())]


def whole_words(tokenizer: AnyTokenizer) -> list[str]:
    """Return the pieces of a vocabulary that are words by themselves, in its order: candidates for analogies."""
    specials = special_ids(tokenizer)
    pieces = (piece for token_id, piece in enumerate(tokenizer.vocabulary) if token_id not in specials)
    candidates = (piece.lstrip("".join(WORD_STARTS)) for piece in pieces)
    return [*dict.fromkeys(word for word in candidates if word.isalpha())]


def word_table(folder: Path, words: Sequence[str]) -> WordTable:
    """Return the vectors (V, D) of words, each read alone by the model in a folder; zeros for words of more pieces."""
    import torch

    from osbert.data.pack import Packer
    from osbert.evaluation.forward import batches, evaluating
    from osbert.interop.folder import open_folder

    opened = open_folder(folder)
    tokenizer, backbone = opened.tokenizer, opened.backbone
    packer = Packer(tokenizer=tokenizer, length=min(opened.architecture.length, 32))
    unread = special_ids(tokenizer)
    runs = [(index, packer.run(word)) for index, word in enumerate(words)]
    read = [(index, run) for index, run in runs if len(run.ids) == 1 and run.ids[0] not in unread]
    examples = [packer.single(run.ids, run.words) for _, run in read]
    vectors = np.zeros((len(words), backbone.architecture.width), np.float32)
    with evaluating(backbone) as device:
        for batch in batches(examples):
            states = torch.stack([layer.float() for layer in backbone.layers(batch.to(device))]).mean(0).cpu()
            for number, row in zip(batch.records.tolist(), states.split(list(batch.lengths)), strict=True):
                index, run = read[number]
                vectors[index] = row.numpy()[examples[number].ids == run.ids[0]][0]
    return WordTable(words, vectors)


def score_words(encoder: Path, tests: Sequence[WordTest], data: Path) -> dict[str, WordScore]:
    """Return the scores of a finished encoder by test, {} if it is not finished; they are kept beside its folder."""
    if not RunFolder(encoder).finished or not tests:
        return {}
    path = encoder.with_name(SCORES)
    scores_by_test = read_own(path, "Remove it and give the same command again.") if path.is_file() else {}
    if missing := [test for test in tests if test.name not in scores_by_test]:
        scores_by_test = {
            **scores_by_test,
            **{name: vars(score) for name, score in _compute_scores(encoder, missing, data).items()},
        }
        write_sealed(path, scores_by_test)
    return {test.name: WordScore(**scores_by_test[test.name]) for test in tests}


def _compute_scores(encoder: Path, tests: Sequence[WordTest], data: Path) -> Mapping[str, WordScore]:
    from osbert.interop.folder import open_folder

    test_words = itertools.chain(*(test.words(data) for test in tests))
    # The vocabulary's words first: a table answers analogies with one of its first words.
    table = word_table(encoder, [*dict.fromkeys([*whole_words(open_folder(encoder).tokenizer), *test_words])])
    return {test.name: test.score(table, data) for test in tests}
