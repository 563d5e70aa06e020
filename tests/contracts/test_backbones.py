"""A backbone is one file: a toy family, found by its file's name, goes through the whole chain."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import corpora
import osbert
from osbert import components
from osbert.commands.embed import embed
from osbert.commands.finetune import finetune
from osbert.commands.pretrain import pretrain
from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import write_model
from osbert.models import families
from osbert.models.contract import Backbone, Learner, find_family
from osbert.objectives.replaced import ReplacedTokens
from osbert.server.calls.models import ModelFolder
from osbert.server.wire import Dispatch, Orders
from osbert.server.worker import Worker
from own_files import SHORT, beside
from refusals import refusal
from vocabularies import train

TOY = "toy_mean"
RECIPE = f"""
objectives = ["mlm"]
family = "{TOY}"
[model]
width = 16
length = 24
{SHORT}"""


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the folder of families have one file more."""
    beside(monkeypatch, families)


def example(ids: list[int]) -> Example:
    length = len(ids)
    special = np.arange(length) % (length - 1) == 0
    return Example(
        ids=np.array(ids, np.int32), segments=np.zeros(length, np.int8), words=np.arange(length), special=special
    )


@pytest.mark.parametrize("family", [*components.names("models.families"), TOY])
def test_every_family_keeps_the_contract(family: str, tmp_path: Path) -> None:
    kind: type[Backbone] = components.find("models.families", family, base=Backbone)
    sizes = kind.settings().replace(vocabulary=11, width=12, length=16)
    backbone = sizes.build().eval()
    batch = collate([example([2, 5, 6, 3]), example([2, 7, 3])])
    with torch.no_grad():
        states, layers = backbone(batch), list(backbone.layers(batch))
    assert states.hidden.shape == (7, 12) and states.summary.shape == states.pooled.shape == (2, 12)
    assert len(layers) == sizes.layers + 1 == len(backbone.stack) and torch.equal(layers[-1], states.hidden)
    assert backbone.embedding is None or len(backbone.embedding.weight) == 11
    write_model(Learner(backbone, {}), tmp_path)
    again = open_folder(tmp_path).backbone
    assert again.architecture == backbone.architecture
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in backbone.state_dict().items())


def test_a_toy_family_goes_through_the_whole_chain(tmp_path: Path) -> None:
    words = ["good", "bad", "film", "actor", "play"]
    rng = random.Random(0)
    texts = [" ".join(rng.choices(words, k=6)) + "." for _ in range(40)]
    corpus = corpora.build_corpus(tmp_path / "made", texts, train([" ".join(words) + " ."] * 3, vocabulary=60))
    (tmp_path / "toy.toml").write_text(RECIPE)
    encoder, run = tmp_path / "encoder", tmp_path / "run"
    pretrain(str(tmp_path / "toy.toml"), corpus=corpus, out=encoder)
    assert json.loads((encoder / "config.json").read_text())["model_type"] == "osbert"
    assert osbert.load(encoder).embed(["good film"]).shape == (1, 16)

    rows = [f"{text},{'pos' if 'good' in text else 'neg'}" for text in texts]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    settings = ("--epochs", "2", "--batch", "8", "--learning-rate", "0.1", "--precision", "fp32")
    finetune("classify", *settings, model=encoder, data=tmp_path / "rows.csv", out=run)
    prediction = osbert.load(run).predict(["good film"])[0]
    assert prediction.value in ("pos", "neg")

    (tmp_path / "texts.txt").write_text("good film\nbad play\n")
    embed(encoder, tmp_path / "texts.txt", out=tmp_path / "vectors.npy")
    vectors = np.load(tmp_path / "vectors.npy")
    np.testing.assert_array_equal(vectors, osbert.load(encoder).embed(["good film", "bad play"]))

    worker, now = Worker(Orders(runs=[ModelFolder("toy", run)], device="cpu")), time.monotonic()
    assert not worker.take_in([Dispatch(1, "predict", {"texts": ["good film"]}, now, now + 60)])
    (answer,) = worker.work().answers
    assert answer.status == 200 and json.loads(answer.body)["model"] == "toy"


def test_a_family_without_a_generator_is_refused_by_its_name() -> None:
    toy: type[Backbone] = components.find("models.families", TOY, base=Backbone)
    (objection,) = ReplacedTokens().objections(toy.settings(vocabulary=11))
    assert f"model.family = {TOY}" in objection
    with pytest.raises(ValueError, match=TOY):
        ReplacedTokens().head(toy.settings(vocabulary=11).build())


def test_a_family_under_another_name_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Path(__file__).parents[1] / "made" / "families" / "toy_mean.py"
    (tmp_path / "toy_other.py").write_text(toy.read_text())
    beside(monkeypatch, families, tmp_path)
    with refusal("invalid-component", "toy_other.py", "toy_mean"):
        find_family("toy_other")


def test_what_a_family_cannot_is_a_message(tmp_path: Path) -> None:
    kind: type[Backbone] = components.find("models.families", TOY, base=Backbone)
    write_model(Learner(kind.settings(vocabulary=11).build(), {}), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for fields, refused in (
        ({"osbert_family": "toy_mea"}, ("unknown-component", "toy_mea")),
        ({"osbert_family": 3}, ("damaged-file", "config.json", "osbert_family")),
        ({"osbert_architecture": {"width": "wide"}}, ("invalid-value", "config.json", "width", "wide")),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | fields))
        with refusal(*refused):
            _ = open_folder(tmp_path).backbone
