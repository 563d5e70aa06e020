"""Words that models of different tokenizers read: the same characters, the tokens of each, none that is cut."""

from __future__ import annotations

import numpy as np
import torch

from osbert.data.pack import Packer
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.analysis.shared_words import draw_shared_sample, word_states, word_tokens

WHOLE = Packer(tokenizer=Tokenizer([*SPECIALS, "good", "films", "bad", "play", "."]), length=16)
PARTS = Packer(tokenizer=Tokenizer([*SPECIALS, "good", "film", "##s", "b", "##a", "##d", "."]), length=8)


def test_a_word_is_the_same_characters_in_both_and_a_cut_one_is_left_out() -> None:
    _, whole = word_tokens("good films bad", WHOLE)
    assert {bounds: tokens.tolist() for bounds, tokens in whole.items()} == {(0, 4): [1], (5, 10): [2], (11, 14): [3]}
    example, parts = word_tokens("good films bad", PARTS)
    assert {bounds: tokens.tolist() for bounds, tokens in parts.items()} == {
        (0, 4): [1], (5, 10): [2, 3], (11, 14): [4, 5, 6],
    }  # fmt: skip
    example, parts = word_tokens("good films . bad", PARTS)
    assert len(example) == 8 and max(parts) == (11, 12), "of bad only two pieces fit"


def test_texts_are_the_same_for_all_and_each_draws_one_word() -> None:
    texts = [
        "good films bad play .",
        "play",
        "good good",
        "bad films . good films . bad play good bad play . good",
    ] * 20
    found = draw_shared_sample(texts, [PARTS, WHOLE], count=100, shortest=4, rng=np.random.default_rng(0))
    parts, whole = found.samples
    assert len(parts) == len(whole) == 60 and parts.short == 20 and parts.read == 80  # "play" is unknown, and short
    drawn = set()
    for place, tokens in enumerate(zip(*found.words, strict=True)):
        words = ["".join(WHOLE.tokenizer.decode([one]) for one in whole.examples[place].ids[tokens[1]].tolist())]
        pieces = parts.examples[place].ids[tokens[0]].tolist()
        assert "".join(PARTS.tokenizer.decode([one]).removeprefix("##") for one in pieces) in (*words, "[UNK]")
        drawn |= {*words}
    assert drawn > {"good", "films", "bad"}


def test_the_state_of_a_word_is_the_mean_of_its_pieces() -> None:
    states = torch.arange(12.0).reshape(4, 3)
    found = word_states([states, 2 * states], np.array([1, 2]))
    assert found.tolist() == [[4.5, 5.5, 6.5], [9.0, 11.0, 13.0]]
