"""ELMo from text to tasks: whole words, both directions, killed and resumed, then vectors, tags and classes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import corpora
import osbert
from osbert.interop.folder import open_folder
from osbert.runs.pretrain.settings import read_plan
from osbert.text.train_file import word_tokenizer
from refusals import refusal
from terminal import run

SIZES = ("--model.width", "16", "--cells", "12", "--filters", "64", "--characters", "4")
STEPS = ("--steps", "12", "--log-every", "3", "--checkpoint-every", "6", "--device", "cpu", "--precision", "fp32")
SMALL = (*SIZES, *STEPS, "--model.dropout", "0.1", "--batch", "16", "--micro-tokens", "300", "--data.length", "24")


@pytest.fixture(scope="module")
def word_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    documents = corpora.invented()
    words = sorted({word for text in documents for word in text.replace(".", " .").split()})
    return corpora.build_corpus(tmp_path_factory.mktemp("words"), documents, word_tokenizer(words, lowercase=False))


@pytest.fixture(scope="module")
def elmo(word_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("encoders") / "elmo"
    assert run("pretrain", "elmo-small", *SMALL, "--corpus", word_corpus, "--out", out) == 0
    return out


def test_it_learns_and_is_written_with_its_spelling_and_both_directions(elmo: Path) -> None:
    lines = [json.loads(line) for line in (elmo / "metrics.jsonl").read_text().splitlines()]
    losses = [line["both_ways.loss"] for line in lines if "both_ways.loss" in line]
    assert losses[-1] < losses[0] and any("held_out.both_ways.loss" in line for line in lines)
    assert json.loads((elmo / "config.json").read_text())["model_type"] == "osbert"
    opened = open_folder(elmo)
    assert [*opened.heads] == ["both_ways"]
    vocabulary = opened.tokenizer.vocabulary
    spelling = opened.backbone.words.spelling[10].tolist()
    assert bytes(spelling[1 : spelling.index(259)]).decode() == vocabulary[10]


def test_killed_halfway_it_ends_in_the_same_bits(elmo: Path, word_corpus: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(elmo, cut)
    shutil.rmtree(cut / "checkpoints" / "step-12")
    for name in ("model.safetensors", "config.json", "held_out.npz", "report.html"):
        (cut / name).unlink()
    facts = json.loads((cut / "run.json").read_text())
    facts.pop("finished")
    (cut / "run.json").write_text(json.dumps(facts))
    assert run("pretrain", "elmo-small", *SMALL, "--corpus", word_corpus, "--out", cut) == 0
    assert (elmo / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()


def test_a_text_has_the_same_vector_alone_and_among_others(elmo: Path) -> None:
    model = osbert.load(elmo)
    texts = ["Bada keda.", "Loda.", "Mifa suda nugi kela. Bada keda."]
    together = model.embed(texts)
    np.testing.assert_allclose(together, np.concatenate([model.embed([text]) for text in texts]), atol=1e-6)


@pytest.mark.lab
def test_a_random_model_reads_the_same_spelling(elmo: Path) -> None:
    from osbert_lab.analysis.passes import fresh

    trained = open_folder(elmo).backbone
    random = fresh(trained, seed=0)
    assert torch.equal(random.words.spelling, trained.words.spelling)
    assert not torch.equal(random.words.rows.weight, trained.words.rows.weight)


def test_it_goes_on_with_its_own_objective_and_refuses_masked_pieces(
    elmo: Path, word_corpus: Path, tmp_path: Path
) -> None:
    more = ("--steps", "1", "--learning-rate", "1e-9", "--device", "cpu", "--precision", "fp32")
    assert run("pretrain", "--from", elmo, *more, "--corpus", word_corpus, "--out", tmp_path / "more") == 0
    before, after = (open_folder(folder).tensors for folder in (elmo, tmp_path / "more"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(tensor, after[name], rtol=0, atol=1e-6)
    with refusal("invalid-setting", "both_ways"):
        read_plan("elmo-small", {"objectives": ["mlm"]}, corpus=word_corpus, out=tmp_path / "masked")


@pytest.mark.parametrize(
    ("task", "settings"), [("classify", ()), ("classify", ("--from-scratch",)), ("tag", ("--features", "mix"))]
)
def test_tasks_stand_on_it(elmo: Path, tmp_path: Path, task: str, settings: tuple[str, ...]) -> None:
    """With fresh weights too, which read the same spelling; a tagger mixes its three layers (section 3.2)."""
    rows = [f"bada {other} .".split() for other in ("keda", "loda", "mida", "nuda")] * 4
    if task == "classify":
        lines = ["text,label", *(f"{' '.join(row)},{'k' if 'keda' in row else 'o'}" for row in rows)]
    else:
        lines = [line for row in rows for line in (*(f"{word} {'B-K' if word == 'keda' else 'O'}" for word in row), "")]
    data, out = tmp_path / "rows.csv", tmp_path / "run"
    data.write_text("\n".join(lines) + "\n")
    chosen = ("--epochs", "1", "--batch", "8", "--precision", "fp32", "--device", "cpu", *settings)
    assert run("finetune", task, "--model", elmo, "--data", data, "--dev", data, *chosen, "--out", out) == 0
    assert len(osbert.load(out).predict(["bada keda ."])) == 1
    spelling = [open_folder(folder).backbone.words.spelling for folder in (elmo, out)]
    assert torch.equal(*spelling)
