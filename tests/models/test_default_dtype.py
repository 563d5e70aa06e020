"""torch.set_default_dtype, which a program may call for its own tensors, changes no number of osbert."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import corpora
import osbert
from osbert import components
from osbert.inference.engine import load
from osbert.models.contract import Backbone
from osbert.models.random_numbers import fix_seed
from osbert.runs.pretrain.pretraining import PretrainRequest, pretrain
from tiny_runs import write_run
from vocabularies import train

ROWS = [{"text": f"the {word} film", "label": label} for word, label in [("good", "pos"), ("bad", "neg")] * 12]
QUICK: dict[str, Any] = {"epochs": 1, "batch": 8, "precision": "fp32", "device": "cpu", "dev_data": ROWS}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"positions": "rotary", "neighbours": 4.0, "heads": 4, "normalization": "pre"},
    {"positions": "disentangled", "buckets": 4, "farthest": 8},
    {"positions": "distances", "segment_scores": True, "biases": False},
    {"positions": "none", "distance_scores": 8},
    {"recurrent": 1, "adapters": 4},
]


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
        assert torch.get_default_dtype() == dtype  # it is the program's own
    finally:
        torch.set_default_dtype(before)


def both(compute: Callable[[str], Any]) -> tuple[Any, Any]:
    """Return what a function of a name gives with either default."""
    with default_dtype(torch.float64):
        second = compute("double")
    return compute("single"), second


@pytest.mark.parametrize("family", components.names("models.families"))
def test_new_models_of_every_family_have_the_same_weights(family: str) -> None:
    kind: type[Backbone] = components.find("models.families", family, base=Backbone)

    def build(_: str) -> dict[str, torch.Tensor]:
        with fix_seed(3):
            return kind.settings().replace(vocabulary=12, width=12, length=16).build().state_dict()

    single, double = both(build)
    assert all(tensor.dtype == single[name].dtype for name, tensor in double.items())
    assert all(torch.equal(tensor, single[name]) for name, tensor in double.items())


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_fine_tuning_is_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    def work(name: str) -> tuple[bytes, Any]:
        encoder = write_run(tmp_path / f"encoder {name}", None, **settings)
        run = osbert.finetune("classify", model=encoder, data=ROWS, out=tmp_path / name, **QUICK)
        model = load(run.folder, device="cpu")
        weights = (run.folder / "model.safetensors").read_bytes()
        return weights, [model.predict(["the bad film", "a"]), model.embed(["the film"]).tobytes()]

    single, double = both(work)
    assert single == double


@pytest.mark.parametrize("options", [{"tuning": "lora"}, {"features": "mix"}], ids=str)
def test_fine_tuning_of_tags_is_the_same(options: dict[str, Any], tmp_path: Path) -> None:
    encoder = write_run(tmp_path / "encoder", None)
    rows = [{"tokens": ["the", "good", "film"], "tags": ["O", "B-WORK", "I-WORK"]}] * 16
    settings = {**QUICK, "dev_data": rows, **options}

    def work(name: str) -> bytes:
        run = osbert.finetune("tag", model=encoder, data=rows, out=tmp_path / name, decoder="crf", **settings)
        return b"".join(path.read_bytes() for path in sorted(run.folder.glob("*.safetensors")))

    single, double = both(work)
    assert single == double


@pytest.mark.parametrize(
    "recipe", ["cpu", "electra-small", pytest.param("transformer-xl-small", marks=pytest.mark.lab)]
)
def test_pretraining_is_the_same(recipe: str, tmp_path: Path) -> None:
    documents = corpora.invented()
    corpus = corpora.build_corpus(tmp_path / "corpus", documents, train(documents, vocabulary=120))
    settings = {
        "model.layers": 1, "width": 16, "heads": 2, "model.length": 24, "batch": 4, "data.length": 24,
        "steps": 3, "precision": "fp32", "device": "cpu",
    }  # fmt: skip

    def work(name: str) -> bytes:
        request = PretrainRequest(recipe=recipe, settings=settings, corpus=corpus, out=tmp_path / name)
        return (pretrain(request).folder / "model.safetensors").read_bytes()

    single, double = both(work)
    assert single == double


@pytest.mark.lab
def test_loaded_models_answer_the_same(runs: dict[str, Path], tmp_path: Path) -> None:
    writer = write_run(tmp_path / "writer", None, masks=True, direction="left_to_right")
    text = "the good [MASK]"

    def work(_: str) -> list[Any]:
        masks, writes, tags = (load(one, device="cpu") for one in (runs["pretrained"], writer, runs["tagger"]))
        return [
            masks.fill(text), masks.score(["a film"]), masks.explain(text, points=3, tolerance=1e9),
            masks.attention("a film").weights.tobytes(), writes.generate(["the"], most=4, beams=2),
            tags.predict(["a good film"]), tags.explain("a good film", points=3, tolerance=1e9),
            osbert.training_rows(runs["classifier"], "a good film", rows=ROWS),
        ]  # fmt: skip

    single, double = both(work)
    assert repr(single) == repr(double)
