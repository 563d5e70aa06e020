"""A small vocabulary that knows letters of many scripts, and texts that try what is hard about them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import strategies

from osbert.text.tokenizer import SPECIALS, Tokenizer

# Letters whose case or accents change their length, combining marks out of order, jamo, scripts without spaces,
# spaces and controls of all kinds, ideographs of all blocks, characters beyond the basic plane.
HARD = (
    "aAbBzZ09_.,!?'\"-#$^`~ \t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\ufeff\ufffd\u200b\u200d\u2028\u2029\u3000"
    "éÉñüßẞİıŁłſŉﬁǅΑαΣσς΄Άйёы\u0301\u0323\u0327\u0345\u0308֑אبةَकािक़กำ한글ᄒ\u3131かガが々〆"
    "一龥㐀豈﨑𠀀𪜀丽，。！「」…—“”’·€½²Ⅷ①ⓐ😀👍🏽🇩🇪𝒜𝔘𐐀𐐨\u1fef\u037e\u212a\u2126\u1e9b"
)
LETTERS = "".join(sorted(set(unicodedata.normalize("NFD", HARD.lower() + HARD) + HARD) - set(" \t\n\r")))


def make_vocabulary() -> list[str]:
    """Return the specials, each hard letter in both forms, and some pieces of several letters."""
    letters = [letter for letter in LETTERS if letter not in "\x1c\x1f\x85\x0b\x0c" and not letter.isspace()]
    longer = ["ab", "##ab", "##ba", "abab", "##zz", "AB", "##Ab", "не", "##ος", "10", "##00", "[unused1]", "##"]
    return [*SPECIALS, *letters, *(f"##{letter}" for letter in letters), *longer]


@pytest.fixture(scope="session", params=[True, False], ids=["uncased", "cased"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer(make_vocabulary(), lowercase=request.param)


@pytest.fixture(scope="session")
def uncased() -> Tokenizer:
    return Tokenizer(make_vocabulary())


@pytest.fixture(scope="session")
def texts() -> strategies.SearchStrategy[str]:
    """Any text, of hard characters more often than of others."""
    hard = strategies.text(strategies.sampled_from(HARD), max_size=40)
    plain = strategies.text("abz AB.,\n", max_size=40)
    return strategies.one_of(hard, plain, strategies.text(max_size=30))
