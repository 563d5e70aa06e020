"""Examples with a source: what a decoder reads and predicts, and that both sides stay together in a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from osbert.data.batch import Batch, collate, halves, micro_batches, read_batches, write_batches
from osbert.data.example import Example
from osbert.data.examples import Examples
from osbert.data.pack import Packer
from osbert.inference.onnx_backend import rectangles
from osbert.text.file_tokenizer import starting_piece
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.writing.decoder_inputs import decoder_example

TOKENIZER = Tokenizer([*SPECIALS, "good", "bad", "film", "play"])
PACKER = Packer(tokenizer=TOKENIZER, length=16)


def pair(source: str, text: str, record: int = 0) -> Example:
    sides = [PACKER.single(*PACKER.run(one), record=record) for one in (source, text)]
    return decoder_example(*sides, TOKENIZER, name="generate")


def sides(batch: Batch) -> dict[int, tuple[list[int], list[int], list[int]]]:
    """Return, by record, what the encoder reads, what the decoder reads, and what it is to predict."""
    found = {}
    source, target = batch.source, batch.targets["generate"]
    assert source is not None and source.records.tolist() == batch.records.tolist()
    for row, record in enumerate(batch.records.tolist()):
        own, start = (one.ids.split(list(one.lengths))[row].tolist() for one in (source, batch)), int(batch.starts[row])
        inside = (target.index >= start) & (target.index < start + batch.lengths[row])
        assert (target.index[inside] - start).tolist() == list(range(batch.lengths[row]))
        found[record] = (*own, target.labels[inside].tolist())
    return found


def test_a_decoder_reads_what_it_is_to_predict_one_piece_later() -> None:
    found = pair("good film", "bad play", 3)
    text = [TOKENIZER.cls, *TOKENIZER.encode("bad play").tolist(), TOKENIZER.sep]
    assert found.ids.tolist() == [TOKENIZER.sep, *text[:-1]] and found.record == 3
    assert found.targets["generate"].labels.tolist() == text
    assert found.targets["generate"].index.tolist() == [0, 1, 2, 3]
    assert found.special.tolist() == [True, True, False, False] and found.words.tolist() == [False, False, True, True]
    assert found.source is not None
    assert found.source.ids.tolist() == [TOKENIZER.cls, *TOKENIZER.encode("good film").tolist(), TOKENIZER.sep]
    assert starting_piece(TOKENIZER) == TOKENIZER.sep


def test_both_sides_stay_together_however_batches_are_cut(tmp_path: Path) -> None:
    texts = [("good", "bad film"), ("good film play", "bad"), ("bad", "film"), ("play bad good", "play film good")]
    examples = [pair(*both, record) for record, both in enumerate(texts)]
    whole = collate(examples)
    assert whole.tokens == sum(map(len, examples)) and whole.source is not None
    assert whole.size == whole.tokens + whole.source.tokens
    assert list(whole.source.lengths) == [5, 5, 3, 3] and list(whole.lengths) == [5, 3, 4, 3]
    wanted = sides(whole)
    assert len(wanted) == 4
    cut = micro_batches(examples, 16)
    assert len(cut) > 1 and all(batch.size <= 16 for batch in cut)
    for batches in (cut, halves(whole), [whole.to(torch.device("cpu"))]):
        assert {record: one for batch in batches for record, one in sides(batch).items()} == wanted
    write_batches(tmp_path / "batches.npz", cut)
    again = [sides(batch) for batch in read_batches(tmp_path / "batches.npz")]
    assert again == [sides(batch) for batch in cut]


def test_columns_are_the_examples() -> None:
    examples = [pair("good", "bad film", 0), pair("good film", "bad", 1)]
    columns = Examples.of(examples)
    assert columns.sizes.tolist() == [len(one) + len(one.source or []) for one in examples]
    for found in (
        columns[1],
        columns[1:][0],
        columns.take(np.array([1, 0]))[0],
        Examples.concatenate([columns, columns])[3],
    ):
        assert found.source is not None and examples[1].source is not None
        assert found.ids.tolist() == examples[1].ids.tolist()
        assert found.source.ids.tolist() == examples[1].source.ids.tolist()
    alone = PACKER.single(*PACKER.run("good"))
    with pytest.raises(ValueError, match="source"):
        Examples.of([examples[0], alone])
    with pytest.raises(ValueError, match="source"):
        next(rectangles(examples, tokens=64))
