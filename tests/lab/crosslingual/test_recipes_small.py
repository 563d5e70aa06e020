"""The recipes of several languages, shrunk: the loss falls, a stopped run ends in the same bits, and folders reload."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import osbert
from interrupted import resume_bit_for_bit

SMALL: dict[str, Any] = {
    "model.layers": 1,
    "model.width": 32,
    "model.heads": 2,
    "model.length": 48,
    "model.feedforward": 32,
    "data.length": 24,
    "data.batch": 16,
    "optimizer.learning_rate": 0.01,
    "training.steps": 30,
    "training.log_every": 5,
    "training.checkpoint_every": 15,
    "device": "cpu",
    "precision": "fp32",
}
LANGUAGES = {"xxa": "bdfg", "xxb": "klmn", "xxc": "prst"}
CHOSEN: dict[str, dict[str, Any]] = {
    "mbert-base": {"data.long_length": 48},
    "xlm": {},
    "mbart": {"denoise.languages": tuple(LANGUAGES)},
}


def sentence(consonants: str, numbers: list[int]) -> str:
    """Return a sentence of a language, whose words are numbers spelt with its own consonants."""
    return " ".join(f"{consonants[number % 4]}{'aeiou'[number // 4]}" for number in numbers) + " ."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a corpus of three languages, with their names before each line, and one of pairs."""
    folder, rng = tmp_path_factory.mktemp("languages"), random.Random(0)
    texts = [[rng.choices(range(20), k=rng.randint(4, 8)) for _ in range(4)] for _ in range(90)]
    for name, consonants in LANGUAGES.items():
        documents = ["\n".join(f"{name} {sentence(consonants, line)}" for line in text) for text in texts]
        (folder / f"{name}.txt").write_text("\n\n".join(documents))
    pairs = ["\n".join(sentence(letters, line) for letters in ("bdfg", "klmn")) for text in texts for line in text]
    (folder / "pairs.txt").write_text("\n\n".join(pairs))
    files = [folder / f"{name}.txt" for name in LANGUAGES]
    osbert.train_tokenizer([*files, folder / "pairs.txt"], out=folder / "vocabulary", vocabulary=130)
    for name in (*LANGUAGES, "pairs"):
        osbert.build_corpus(folder / f"{name}.txt", tokenizer=folder / "vocabulary", out=folder / name, workers=1)
    osbert.mix_corpora([folder / name for name in LANGUAGES], weights="tokens^0.7", out=folder / "mixture")
    return folder


@pytest.mark.parametrize("name", CHOSEN)
def test_a_recipe_learns_resumes_and_reloads(name: str, folder: Path, tmp_path: Path) -> None:
    settings = {"corpus": folder / ("pairs" if name == "xlm" else "mixture"), **SMALL, **CHOSEN[name]}
    osbert.pretrain(name, out=tmp_path / "whole", **settings)
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0] - 0.3
    resume_bit_for_bit(name, tmp_path / "whole", tmp_path / "stopped", 20, settings)
    vectors = osbert.load(tmp_path / "whole").embed(["ba da .", "ka la ."], pooling="mean")
    assert vectors.shape == (2, 32) and np.isfinite(vectors).all()
    if name == "mbert-base":
        transformers = pytest.importorskip("transformers")
        model = transformers.AutoModel.from_pretrained(tmp_path / "whole").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "whole")
        with torch.no_grad():
            states = model(**tokenizer("ba da .", return_tensors="pt")).last_hidden_state[0]
        assert np.allclose(states.mean(0).numpy(), vectors[0], atol=1e-5)
