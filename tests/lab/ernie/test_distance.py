"""Sentence distance: adjacent texts, texts of one document, and texts of two, a third each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from osbert.data.pack import Packer
from osbert.text.document import Document
from osbert_lab.ernie.distance import ADJACENT, OTHER, SAME, Distance
from unique import pairs, texts


def test_each_label_is_true_and_a_third(packer: Packer, text: list[Document]) -> None:
    home = {int(piece): number for number, document in enumerate(text) for piece in document.ids}
    sentence = {
        int(piece): number
        for document in text
        for number, (first, last) in enumerate(zip(document.sentences, document.sentences[1:]))
        for piece in document.ids[first:last]
    }
    counts = np.zeros(3, np.int64)
    for example in pairs(Distance(), text, replace(packer, short=0)):
        label, (first, second) = int(example.targets["distance"].labels[0]), texts(example)
        assert len(first) and len(second)
        counts[label] += 1
        assert (home[first[0]] == home[second[0]]) == (label != OTHER)
        if label == ADJACENT and not example.truncated:
            assert second[0] == first[-1] + 1
        if label == SAME:
            # At least one sentence lies between A and B, if none of them was cut.
            gap = (sentence[second[0]] - sentence[first[-1]], sentence[first[0]] - sentence[second[-1]])
            assert max(gap) >= 1 and (max(gap) >= 2 or example.truncated or max(map(len, text)) > 28)
    assert (abs(counts / counts.sum() - 1 / 3) < 0.06).all()


def test_lengths_tell_no_label(packer: Packer, text: list[Document]) -> None:
    """The mean length of B is about the same for each label, so it is no way to read it."""
    found: dict[int, list[int]] = {ADJACENT: [], SAME: [], OTHER: []}
    for example in pairs(Distance(), text, replace(packer, length=128, short=0)):
        found[int(example.targets["distance"].labels[0])].append(len(texts(example)[1]))
    means = [float(np.mean(lengths)) for lengths in found.values()]
    assert max(means) - min(means) < 0.12 * max(means)


def test_one_document_is_refused(packer: Packer, text: list[Document]) -> None:
    with pytest.raises(ValueError, match="two documents"):
        pairs(Distance(), text[:1], packer)
