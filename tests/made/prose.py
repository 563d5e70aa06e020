"""A small tokenizer that knows every ASCII letter, and text to encode with it."""

from __future__ import annotations

import random
import string
from collections.abc import Callable

import pytest

from osbert.text.tokenizer import SPECIALS, Tokenizer

WORDS = ("the", "river", "runs", "past", "old", "houses", "and", "nobody", "knows", "why")


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    letters = string.ascii_lowercase + string.digits + ".,!?-"
    return Tokenizer([*SPECIALS, *letters, *(f"##{letter}" for letter in letters), *WORDS, "##ing"])


@pytest.fixture(scope="session")
def prose() -> Callable[..., list[str]]:
    """Return a function (documents, seed) -> that many documents of a few lines of sentences."""

    def write(documents: int, seed: int = 0) -> list[str]:
        rng = random.Random(seed)

        def sentence() -> str:
            words = [rng.choice(WORDS) if rng.random() < 0.8 else f"w{rng.randrange(500)}" for _ in range(9)]
            return " ".join(words).capitalize() + rng.choice(".!?")

        def line() -> str:
            return " ".join(sentence() for _ in range(rng.randrange(1, 4)))

        return ["\n".join(line() for _ in range(rng.randrange(1, 6))) for _ in range(documents)]

    return write
