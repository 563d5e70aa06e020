"""Fixtures: a tiny encoder, a task that it can learn, and a run fine-tuned on it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from osbert.commands.finetune import finetune
from tiny_runs import write_run


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder"), None)


@pytest.fixture(scope="session")
def reviews() -> Callable[[int], list[tuple[str, str]]]:
    """Return a maker of rows (text, label) in which one word decides."""

    def rows(count: int) -> list[tuple[str, str]]:
        rng = random.Random(0)
        kinds = {"good": "pos", "fine": "pos", "bad": "neg", "poor": "neg"}
        found = []
        for _ in range(count):
            word = rng.choice(list(kinds))
            words = [*rng.choices(["film", "a", "the", "plays", "actor"], k=rng.randint(1, 8)), word]
            rng.shuffle(words)
            found.append((" ".join(words), kinds[word]))
        return found

    return rows


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory, reviews: Callable[[int], list[tuple[str, str]]]) -> Path:
    """Return a CSV of 200 such rows."""
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    lines = [f"{text},{label}" for text, label in reviews(200)]
    path.write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    return path


SETTINGS = ("--epochs", "6", "--batch", "32", "--learning-rate", "1e-2", "--precision", "fp32", "--log-every", "4")


@pytest.fixture(scope="session")
def settings() -> tuple[str, ...]:
    return SETTINGS


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, encoder: Path, table: Path) -> Path:
    """Return a run folder fine-tuned on the table."""
    folder = tmp_path_factory.mktemp("runs") / "classifier"
    finetune("classify", *SETTINGS, model=encoder, data=table, out=folder)
    return folder
