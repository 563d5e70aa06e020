"""Word order: runs keep their pieces, every order is as likely, what mlm has chosen stays, and it trains beside mlm."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corpora
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.document import Document
from osbert_lab.structbert.word_order import WordOrder
from terminal import run
from vocabularies import train


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9),
    rate=st.floats(0.01, 0.25),
    size=st.integers(2, 4),
    seed=st.integers(0, 9),
    beside_mlm=st.booleans(),
)
def test_a_run_keeps_its_pieces_and_is_free(
    packer: Packer,
    make_documents: Callable[..., list[Document]],
    lengths: list[int],
    rate: float,
    size: int,
    seed: int,
    beside_mlm: bool,
) -> None:
    objective = WordOrder(rate=rate, size=size)
    plain = Examples.of([*packer.spans(make_documents([lengths]), np.random.default_rng(seed))])
    noise = Noise.at(seed, np.arange(len(plain)))
    before = MaskedLanguage().corrupt_all(plain, packer, noise) if beside_mlm else plain
    for text, earlier, example in zip(plain, before, objective.corrupt_all(before, packer, noise), strict=True):
        if "word_order" not in example.targets:
            continue
        target = example.targets["word_order"]
        assert target.index is not None and len(target.index) % size == 0
        assert len(target.index) <= size * max(1, round(rate * len(text)))
        assert len({*target.index.tolist()}) == len(target.index) and not text.special[target.index].any()
        assert (target.labels == text.ids[target.index]).all()
        for index in target.index.reshape(-1, size):
            assert (np.diff(index) == 1).all()
            assert sorted(example.ids[index]) == sorted(text.ids[index])
        untouched = np.setdiff1d(np.arange(len(text)), target.index)
        assert (example.ids[untouched] == earlier.ids[untouched]).all()
        if "mlm" in earlier.targets:
            chosen = earlier.targets["mlm"].index
            assert chosen is not None and not np.isin(chosen, target.index).any()


def test_five_percent_of_trigrams_are_shuffled_and_every_order_is_as_likely(
    packer: Packer, text: list[Document]
) -> None:
    """Chi-square with five degrees of freedom at a fixed seed: 20.5 is exceeded once in a thousand."""
    spans = Examples.of([*packer.spans(text, np.random.default_rng(0))])
    examples = [*WordOrder().corrupt_all(spans, packer, Noise.at(0, np.arange(len(spans))))]
    ((_, counted, expected), (_, moved, _)) = WordOrder().rates(examples)
    assert float(counted[:-1]) == pytest.approx(float(expected[:-1]), abs=1)
    assert float(moved[:-1]) == pytest.approx(200 / 3, abs=2)
    orders = []
    for example in examples:
        target = example.targets["word_order"]
        for index, labels in zip(target.index.reshape(-1, 3), target.labels.reshape(-1, 3), strict=True):  # type: ignore[union-attr]
            orders.append(tuple(labels.tolist().index(piece) for piece in example.ids[index].tolist()))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6 and ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 20.5


@pytest.mark.parametrize("settings", [{"size": 1}, {"rate": 0.0}, {"rate": 0.4}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        WordOrder(**settings)  # type: ignore[arg-type]


def test_an_encoder_trains_with_it_beside_mlm_which_is_named_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = corpora.build_corpus(tmp_path, texts := corpora.invented(), train(texts, vocabulary=120))
    sizes = ("--model.layers", "1", "--model.width", "16", "--model.heads", "2", "--data.length", "32")
    training = ("--steps", "4", "--log-every", "1", "--batch", "4", "--device", "cpu", "--precision", "fp32", *sizes)
    pretrain = ("pretrain", "cpu", "--corpus", corpus, "--out", tmp_path / "run", *training)
    assert run(*pretrain, "--objectives", "word_order,mlm") == 1
    assert "Name mlm before word_order" in capsys.readouterr().err
    assert run(*pretrain, "--objectives", "mlm,word_order") == 0
    first = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["loss"] == pytest.approx(first["mlm.loss"] + first["word_order.loss"])
    show = ("corpus", "show", corpus, "--masks", "3", "--recipe", "cpu", "--objectives", "mlm,word_order", *sizes)
    capsys.readouterr()
    assert run(*show, "--mlm.mask", "1", "--mlm.random", "0") == 0
    shown = capsys.readouterr().out
    assert any("←" in word and "[MASK]" not in word for word in shown.split() if word[0].isalpha())
    assert "shuffled, of all tokens" in shown
