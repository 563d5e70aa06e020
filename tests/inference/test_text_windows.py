"""Texts from an iterator: predictions and vectors in its order, however many, and never far ahead."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest

from osbert.inference import model
from osbert.inference.engine import Engine, load
from refusals import refusal

TEXTS = [f"{'good' if n % 3 else 'a bad'} {'film ' * (n % 9)}" for n in range(50)]


@pytest.fixture(scope="module")
def engine(runs: dict[str, Path]) -> Engine:
    return load(runs["classifier"])


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "ROWS", 8)


def test_an_iterator_gives_one_in_its_order(engine: Engine) -> None:
    said = engine.predict(iter(TEXTS))
    assert isinstance(said, Iterator)
    expected = engine.predict(TEXTS)
    found = list(said)
    assert [one.value for one in found] == [one.value for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-6)
    vectors = engine.embed((text for text in TEXTS), normalize=True)
    np.testing.assert_allclose(np.stack(list(vectors)), engine.embed(TEXTS, normalize=True), atol=1e-6)
    tokens = list(engine.embed(iter(TEXTS), pooling="tokens"))
    assert [one.shape for one in tokens] == [one.shape for one in engine.embed(TEXTS, pooling="tokens")]
    assert list(engine.predict(iter([]))) == []


def test_what_is_read_ahead_is_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        for number in count():
            read = number + 1
            yield TEXTS[number % 50]

    for place, _ in enumerate(islice(engine.predict(endless()), 20)):
        assert read <= place + 8
    monkeypatch.setattr(model, "CHARACTERS", 10)
    next(engine.embed(endless()))
    assert read <= 3


def test_what_was_read_before_a_bad_text_is_given_back(engine: Engine) -> None:
    found = []
    with refusal("invalid-value", "texts[10]", "7"):
        for one in engine.predict(iter([*TEXTS[:10], 7, "more"])):  # type: ignore[list-item]
            found.append(one)
    assert len(found) == 10

    def breaking() -> Iterator[str]:
        yield from TEXTS[:3]
        raise OSError("the source is gone")

    vectors = engine.embed(breaking())
    assert len([next(vectors) for _ in range(3)]) == 3
    with pytest.raises(OSError, match="gone"):
        next(vectors)


def test_what_cannot_be_is_refused_at_once(engine: Engine, runs: dict[str, Path]) -> None:
    with refusal("not-a-model"):
        load(runs["encoder"]).predict(iter(TEXTS))
    with refusal("invalid-value", "--layers"):
        engine.embed(iter(TEXTS), layers="lst")
    with refusal("text-too-long", "texts[9]"):
        list(engine.embed(iter([*TEXTS[:9], "film " * 50]), long="error"))
