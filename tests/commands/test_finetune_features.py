"""Features of a frozen encoder for each kind of task: only what is above learns, and a run has its scores again."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest
import torch

import osbert
from osbert.commands.finetune import finetune
from osbert.inference.engine import load
from refusals import refusal

QUICK = ("--epochs", "2", "--learning-rate", "3e-3", "--precision", "fp32", "--device", "cpu", "--batch", "16")
WORDS = ["film", "a", "the", "plays", "actor"]


def rows(kind: str, count: int = 48) -> list[dict[str, str]]:
    """Return rows in which one word of a text decides."""
    rng, made = random.Random(0), []
    for _ in range(count):
        word = rng.choice(["good", "bad"])
        text = [*rng.choices(WORDS, k=rng.randint(2, 6)), word]
        rng.shuffle(text)
        texts = {"text": " ".join(text)}
        if kind == "classify":
            made.append(texts | {"label": word})
        elif kind == "pairs":
            made.append({"text1": " ".join(text), "text2": rng.choice(WORDS), "label": word})
        elif kind == "regress":
            made.append(texts | {"label": str(len(text) + 0.5)})
        elif kind == "multilabel":
            made.append(texts | {"labels": json.dumps([word, *sorted({"film", "actor"} & {*text})])})
        elif kind == "choose":
            made.append(
                {"context": "the film", "ending0": "good play", "ending1": " ".join(text), "label": rng.choice("01")}
            )
        else:
            made.append({"question": "the film", "context": " ".join(text), "answer": word})
    return made


@pytest.mark.parametrize(
    ("kind", "task", "features"),
    [
        ("classify", "classify", "embeddings"),
        ("pairs", "classify", "concat-ends"),
        ("regress", "regress", "last"),
        ("multilabel", "multilabel", "sum-all"),
        pytest.param("choose", "choose", "concat-last-four", marks=pytest.mark.lab),
        ("span", "span", "mix"),
    ],
)
def test_a_task_learns_on_features(encoder: Path, tmp_path: Path, kind: str, task: str, features: str) -> None:
    table = rows(kind)
    for split, part in (("train", table[:36]), ("dev", table[36:])):
        with (tmp_path / f"{split}.csv").open("w", newline="") as file:
            lines = csv.DictWriter(file, table[0])
            lines.writeheader()
            lines.writerows(part)
    before = load(encoder).learner.backbone.state_dict()
    longer = ("--epochs", "15") if kind == "classify" else ()
    finetune(task, *QUICK, *longer, "--features", features, model=encoder, data=tmp_path, out=tmp_path / "run")
    assert not [*(tmp_path / "run").glob("features-*")]
    best = json.loads((tmp_path / "run" / "run.json").read_text())["finished"]["best"]["metrics"]
    assert kind != "classify" or best["accuracy"] > 0.9
    learner = load(tmp_path / "run").learner
    for name, weight in learner.backbone.state_dict().items():
        assert name.startswith("pooler") or torch.equal(weight, before[name])
    assert {"features.recurrent.lstm.weight_ih_l0", "linear.weight"} <= learner.heads[task].state_dict().keys()
    again = osbert.evaluate(tmp_path / "run", data=tmp_path / "dev.csv")
    criterion = load(tmp_path / "run").fine_tuned.criterion  # type: ignore[union-attr]
    assert again[criterion] == pytest.approx(best[criterion], abs=1e-6)


def test_few_rows_are_learnt_on_features_if_so_said(encoder: Path, table: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.csv"
    few.write_text("\n".join(table.read_text().splitlines()[:33]) + "\n")
    small = ("--precision", "fp32", "--device", "cpu", "--epochs", "1", "--features", "last")
    finetune("classify", *small, model=encoder, data=few, out=tmp_path / "run")
    assert load(tmp_path / "run").learner.heads["classify"].frozen is not None
    with refusal("options-exclude-each-other", "--few-shot linear"):
        finetune("classify", *small, "--few-shot", "linear", model=encoder, data=few, out=tmp_path / "other")
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("text1,text2,label\n" + "good film,a play,yes\nbad film,a play,no\n" * 20)
    with refusal("options-exclude-each-other", "--apart"):
        finetune("classify", *small, "--apart", model=encoder, data=pairs, out=tmp_path / "other")
