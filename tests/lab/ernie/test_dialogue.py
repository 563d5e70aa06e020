"""Dialogue: three turns in their order, roles that alternate, and a turn from elsewhere in half of the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from osbert.data.pack import Packer
from osbert.text.document import Document
from osbert_lab.ernie.dialogue import FAKE, REAL, Dialogue
from unique import pairs


@pytest.mark.parametrize("fake", [0.0, 0.5, 1.0])
def test_turns_follow_each_other_but_for_the_replaced_one(packer: Packer, text: list[Document], fake: float) -> None:
    packer = replace(packer, length=130)  # 42 pieces a turn: none is cut
    home = {int(piece): number for number, document in enumerate(text) for piece in document.ids}
    place = {
        int(document.ids[bound]): number for document in text for number, bound in enumerate(document.sentences[:-1])
    }
    labels, replaced = [], np.zeros(3, np.int64)
    for example in pairs(Dialogue(fake=fake), text, packer):
        turns = np.split(example.ids, 1 + np.flatnonzero(example.special))
        turns = [turn[turn > 4] for turn in turns if (turn > 4).any()]
        assert len(turns) == 3 and len(example) <= packer.length and not example.truncated
        homes = [home[int(turn[0])] for turn in turns]
        label = int(example.targets["dialogue"].labels[0])
        labels.append(label)
        assert (label == FAKE) == (len(set(homes)) == 2)
        own = max(homes, key=homes.count)
        numbers = [place[int(turn[0])] if one == own else None for turn, one in zip(turns, homes)]
        first = next(number - at for at, number in enumerate(numbers) if number is not None)
        assert [number in (None, first + at) for at, number in enumerate(numbers)] == [True] * 3
        if label == FAKE:
            replaced[[one != own for one in homes].index(True)] += 1
        # The roles are those of the conversation, whoever said the replaced turn.
        roles = [int(example.segments[np.flatnonzero(example.ids == turn[0])[0]]) for turn in turns]
        assert roles == [(first + at) % 2 for at in range(3)]
    assert abs(np.mean(labels) - fake) < 0.05 and (fake in (0.0, 1.0) or {*labels} == {REAL, FAKE})
    assert fake < 1 or (replaced > 0.25 * replaced.sum()).all()


def test_fractions_and_single_conversations_are_refused(packer: Packer, text: list[Document]) -> None:
    with pytest.raises(ValueError, match="fake"):
        Dialogue(fake=1.1)
    with pytest.raises(ValueError, match="source"):
        pairs(Dialogue(), text[:1], packer)


def test_three_turns_need_a_piece_each(packer: Packer, text: list[Document]) -> None:
    least = Dialogue().shortest(packer.form)
    assert least == 7
    found = pairs(Dialogue(), text[:4], replace(packer, length=least))
    assert len(found) and all(len(example) <= least for example in found)
    with pytest.raises(ValueError, match="7"):
        pairs(Dialogue(), text[:4], replace(packer, length=least - 1))
