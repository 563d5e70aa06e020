"""A tiny encoder, a task that it can learn, and a run fine-tuned on it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from osbert.commands.finetune import finetune
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizer_files import write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.text.tokenizer import SPECIALS, Tokenizer

WORDS = ["good", "fine", "bad", "poor", "film", "a", "the", "play", "##s", "actor", "."]


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = Tokenizer([*SPECIALS, *WORDS])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        backbone = Architecture(layers=1, heads=2, width=16, vocabulary=len(tokenizer), length=24).build()
    write_model(Learner(backbone, {}), folder)
    write_tokenizer(tokenizer, folder, length=24)
    return folder


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
