"""A model gives the same vectors from Python, from `osbert embed` and from the server, whatever folder it is in."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers

import osbert
import three_ways
import tiny_runs
from osbert import components
from osbert.commands.embed import VectorOptions
from osbert.interop.conversion import model_of, open_any, write_model_as
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import write_model
from osbert.interop.sentence_files import SentenceModel, write_sentence_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models import families
from osbert.models.adapting.tuning import Factors
from osbert.models.contract import Backbone, Learner
from own_files import beside

WORDS = tiny_runs.Tokenizer([*tiny_runs.SPECIALS, *tiny_runs.WORDS])
TASK = tiny_runs.TASKS["classifier"]
TEXTS = ["good film", "the play .", "bad actors", "poor"]
LONG = "a fine film . " * 20
QUERY = "encoder.layer.0.attention.self.query.weight"


def huggingface(folder: Path) -> Path:
    """Write a folder as transformers does."""
    torch.manual_seed(5)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=24, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    write_tokenizer(WORDS, folder, length=24)
    return folder


def exported(folder: Path) -> Path:
    """Export a model of sentences."""
    return tiny_runs.write_exported(folder, sentences("mean", True)(folder.with_name("before")))


def tuned(folder: Path) -> Path:
    """Keep only what differs from another model: a head, and a change of low rank."""
    with torch.random.fork_rng(devices=[]):
        changes = {QUERY: Factors(up=torch.randn(16, 2), down=torch.randn(2, 16))}
    return tiny_runs.write_tuned(folder, TASK, changes)


def sentences(pooling: str, normalize: bool) -> Callable[[Path], Path]:
    """Return what writes a model of sentences."""

    def written(folder: Path) -> Path:
        huggingface(folder)
        model = SentenceModel(pooling=pooling, normalize=normalize, length=7)  # type: ignore[arg-type]
        write_sentence_model(folder, model, width=16)
        return folder

    return written


def converted(folder: Path) -> Path:
    """Convert a model of sentences to a run folder."""
    source = sentences("max", True)(folder.with_name("theirs"))
    write_model_as(model_of(open_any(source)), folder, "osbert")
    return folder


def toy(folder: Path) -> Path:
    """Write the toy backbone."""
    kind: type[Backbone] = components.find("models.families", "toy_mean", base=Backbone)
    torch.manual_seed(5)
    write_model(Learner(kind.settings().replace(vocabulary=len(WORDS)).build(), {}), folder)
    write_tokenizer(WORDS, folder, length=24)
    return folder


OWN: dict[str, tuple[Any, bool, int]] = {
    "exported": ("mean", True, 7),
    "contrastive": ("weighted", True, 12),
    "converted": ("max", True, 7),
    **{f"{pooling}-{on}": (pooling, on, 7) for pooling in ("cls", "mean", "max", "weighted") for on in (True, False)},
}
"""The pooling, normalisation and length of the kinds that have their own."""
KINDS: dict[str, Callable[[Path], Path]] = {
    **{kind: sentences(pooling, on) for kind, (pooling, on, _) in OWN.items()},
    "pretrained": lambda folder: tiny_runs.write_run(folder, None, masks=True),
    "fine-tuned": lambda folder: tiny_runs.write_run(folder, replace(TASK, length=6)),
    "contrastive": tiny_runs.write_sentences,
    "huggingface": huggingface,
    "exported": exported,
    "tuned": tuned,
    "converted": converted,
    "toy": toy,
}
LENGTHS = {"fine-tuned": 6, "contrastive": 12} | dict.fromkeys(["pretrained", "huggingface", "tuned", "toy"], 24)
"""Most tokens of a text, where it is not 7."""


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the folder of families have one file more."""
    beside(monkeypatch, families)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def served(folder: Path, **asked: object) -> np.ndarray:
    """Return the vectors that the server gives the texts and the long one, which it refuses if asked to."""
    worker = three_ways.worker_of(folder)
    (refusal,) = worker.take_in([three_ways.request([LONG], long="error", **asked)])
    assert refusal.status == 422 and f"the model reads {LENGTHS.get(folder.name, 7)} tokens" in str(refusal.body)
    return three_ways.by_server(worker, [*TEXTS, LONG], **asked)


def test_three_ways_to_the_same_vectors(kind: str, tmp_path: Path) -> None:
    folder = KINDS[kind](tmp_path / kind)
    vectors = osbert.load(folder).embed([*TEXTS, LONG])
    np.testing.assert_array_equal(three_ways.by_command(folder, [*TEXTS, LONG], tmp_path), vectors)
    np.testing.assert_allclose(served(folder), vectors, rtol=0, atol=1e-6)
    plain = osbert.load(folder).embed([*TEXTS, LONG], pooling="mean", normalize=False)
    settings = open_folder(folder).sentences
    if kind not in OWN:
        assert settings is None
        np.testing.assert_array_equal(vectors, plain)
        return
    assert settings is not None and (settings.pooling, settings.normalize, settings.length) == OWN[kind]
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5) == settings.normalize
    assert np.allclose(vectors, plain, atol=1e-3) == (OWN[kind][:2] == ("mean", False))


@pytest.mark.parametrize("kind", ["pretrained", "exported", "mean-True"])
def test_three_ways_to_vectors_under_options(kind: str, tmp_path: Path) -> None:
    folder = KINDS[kind](tmp_path / kind)
    vectors = osbert.load(folder).embed([*TEXTS, LONG], pooling="cls", normalize=False)
    options = VectorOptions(pooling="cls", normalize=False)
    np.testing.assert_array_equal(three_ways.by_command(folder, [*TEXTS, LONG], tmp_path, options), vectors)
    np.testing.assert_allclose(served(folder, pooling="cls", normalise=False), vectors, rtol=0, atol=1e-6)
