"""Frozen layers, adapters and low-rank changes in runs: what is not tuned stays, bit for bit, and little is kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from osbert import recipe
from osbert.commands.finetune import finetune
from osbert.inference.engine import load
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.interop.tuned_files import read_whole
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.options import parse_settings
from osbert.runs.finetune.plan import read_plan, schema
from refusals import refusal

QUICK = ("--epochs", "3", "--batch", "8", "--precision", "fp32", "--device", "cpu")
TEXTS = ["the good film", "a bad film plays", "fine .", "poor play"]


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    """Return an encoder of three layers."""
    folder = tmp_path_factory.mktemp("deep")
    tokenizer = read_tokenizer(encoder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        sizes = Architecture(layers=3, heads=2, width=16, vocabulary=len(tokenizer), length=24, deviation=0.2)
        write_model(Learner(sizes.build(), {}), folder)
    write_tokenizer(tokenizer, folder, length=24)
    return folder


def differing(run: Path, base: Path) -> set[str]:
    """Return the names of the backbone's tensors that a run has changed or added."""
    before, after = open_folder(base).backbone.state_dict(), open_folder(run).backbone.state_dict()
    return {name for name, value in after.items() if name not in before or not torch.equal(value, before[name])}


def test_frozen_layers_stay_bit_for_bit(deep: Path, table: Path, tmp_path: Path) -> None:
    finetune(
        "classify", *QUICK, "--learning-rate", "1e-2", "--frozen", "2", model=deep, data=table, out=tmp_path / "run"
    )
    changed = differing(tmp_path / "run", deep)
    assert changed and not any(name.startswith(("embeddings.", "blocks.0.", "blocks.1.")) for name in changed)
    assert {name for name in changed if name.startswith("blocks.2.")}
    with refusal("invalid-value", "--frozen", "4", "3"):
        finetune("classify", *QUICK, "--frozen", "4", model=deep, data=table, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_encoder_that_is_not_tuned_keeps_its_weights_but_for_the_pooler(
    deep: Path, table: Path, tmp_path: Path
) -> None:
    finetune("classify", *QUICK, "--tuning", "none", "--epochs", "1", model=deep, data=table, out=tmp_path / "run")
    changed = differing(tmp_path / "run", deep)
    assert changed == {"pooler.weight", "pooler.bias"}
    assert (tmp_path / "run" / "model.safetensors").exists()  # a whole model, which needs no other folder
    with refusal("invalid-setting", "rank = 4", "none"):
        finetune("classify", *QUICK, "--tuning", "none", "--rank", "4", model=deep, data=table, out=tmp_path / "other")


@pytest.mark.parametrize("tuning", ["adapters", "lora"])
def test_only_what_was_tuned_is_kept_and_the_run_works(
    deep: Path, table: Path, tmp_path: Path, tuning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    few = (*QUICK, "--tuning", tuning, "--rank", "4", "--learning-rate", "2e-2", "--epochs", "5")
    finetune("classify", *few, model=deep, data=table, out=out)
    said = capsys.readouterr().out
    assert "weights learn" in said and f"needs {deep}" in said
    changed = differing(out, deep)
    if tuning == "lora":
        assert changed <= {f"blocks.{layer}.attention.inward.weight" for layer in range(3)} | {
            "pooler.weight",
            "pooler.bias",
        }
        inward, before = (open_folder(one).backbone.blocks[0].attention.inward.weight for one in (out, deep))
        assert torch.equal(inward[16:32], before[16:32]) and not torch.equal(inward[:16], before[:16])
    else:
        assert all("adapter" in name or "norm" in name or "pooler" in name for name in changed)
        assert not any(name.startswith("embeddings") for name in changed)
    assert not (out / "model.safetensors").exists() and not (out / "checkpoints").exists()
    kept = load_file(out / "tuned.safetensors")
    numbers = sum(tensor.numel() for tensor in kept.values())
    wanted = 3 * 2 * (2 * 4 * 16) if tuning == "lora" else 3 * (2 * (2 * 4 * 16 + 4 + 16) + 4 * 16)
    assert numbers == wanted + 16 * 16 + 16 + 2 * 16 + 2

    engine = load(out)
    found = engine.predict(TEXTS)
    assert [one.value for one in found] == ["pos", "neg", "pos", "neg"]
    assert engine.embed(TEXTS).shape == (4, 16)
    finetune("classify", *few, "--merge", model=deep, data=table, out=tmp_path / "whole")
    whole = load(tmp_path / "whole")
    assert (tmp_path / "whole" / "model.safetensors").exists()
    assert not (tmp_path / "whole" / "tuned.safetensors").exists()
    for name, value in whole.learner.state_dict().items():
        assert torch.equal(value, engine.learner.state_dict()[name]), name
    if tuning == "lora":
        opened_by_transformers(tmp_path / "whole", [list(one.probabilities.values()) for one in found])


def opened_by_transformers(run: Path, wanted: Sequence[Sequence[float]]) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(run), AutoModelForSequenceClassification.from_pretrained(run)
    for text, ours in zip(TEXTS, wanted):
        with torch.no_grad():
            shares = model.eval()(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0].numpy()
        np.testing.assert_allclose(shares, ours, atol=2e-5)


def test_a_base_that_is_gone_or_another_is_told(deep: Path, table: Path, tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "run"
    shutil.copytree(deep, base)
    finetune("classify", *QUICK, "--epochs", "1", "--tuning", "lora", model=base, data=table, out=out)
    before = read_whole(out)
    base.rename(tmp_path / "moved")
    with refusal("missing-file", "path"):
        load(out)
    facts = json.loads((out / "base.json").read_text())
    (out / "base.json").write_text(json.dumps(facts | {"path": str(tmp_path / "moved")}))
    assert all(torch.equal(value, before[name]) for name, value in read_whole(out).items())
    shutil.copytree(deep, base)
    finetune("classify", *QUICK, "--epochs", "1", model=deep, data=table, out=tmp_path / "other")
    (out / "base.json").write_text(json.dumps(facts | {"path": str(tmp_path / "other")}))
    with refusal("mismatched-base"):
        load(out)


def test_a_second_stage_takes_any_run(
    deep: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The encoder is the first stage's, bit for bit, where nothing is learnt; the head is a fresh one."""
    first, second = tmp_path / "first", tmp_path / "second"
    finetune("classify", *QUICK, "--tuning", "lora", model=deep, data=table, out=first)
    rows = "\n".join(f"the {word} film,{kind}" for word, kind in zip(["good", "bad", "poor"] * 20, "abc" * 20))
    (tmp_path / "three.csv").write_text(f"text,label\n{rows}\n")
    capsys.readouterr()
    still = (*QUICK, "--epochs", "1", "--learning-rate", "1e-60")
    finetune("classify", *still, model=first, data=tmp_path / "three.csv", out=second)
    said = capsys.readouterr().out
    assert "it was fine-tuned for classify: its encoder is trained further, with a new layer" in said
    assert not differing(second, first) and differing(second, deep)
    assert load(second).learner.heads["classify"].linear.out_features == 3
    third = tmp_path / "third"
    finetune("classify", *QUICK, "--tuning", "adapters", model=first, data=table, out=third)
    assert json.loads((third / "base.json").read_text())["path"] == str(first)
    load(third).predict(TEXTS)


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (("--rank", "4"), ("invalid-setting", "rank = 4", "tuning = full")),
        (("--merge",), ("invalid-setting", "merge = True", "tuning = full")),
        (("--tuning", "lora", "--frozen", "1"), ("invalid-setting", "frozen = 1", "tuning = lora")),
        (("--tuning", "lora", "--method", "muon"), ("options-exclude-each-other", "muon", "lora")),
        (("--tuning", "adapters", "--search", "paper"), ("options-exclude-each-other", "--search", "optuna")),
        (("--tuning", "adaptors"), ("invalid-value", "adaptors", "'adapters'")),
    ],
)
def test_what_does_not_go_together_is_told(
    table: Path, tmp_path: Path, settings: Sequence[str], refused: tuple[str, ...]
) -> None:
    with refusal(*refused):
        read_plan("classify", parse_settings(settings, schema("classify")), model=tmp_path, data=table)
    with refusal("options-exclude-each-other"):
        read_plan("classify", {"tuning": "lora", "from_scratch": True}, model=tmp_path, data=table)


def test_few_weights_learn_at_a_higher_rate_unless_one_is_given(table: Path, tmp_path: Path) -> None:
    def rate(*settings: str) -> float:
        plan = read_plan("classify", parse_settings(settings, schema("classify")), model=tmp_path, data=table)
        return float(recipe.as_table(plan.optimizer)["learning_rate"])

    assert rate() == 3e-5 and rate("--tuning", "lora") == rate("--tuning", "adapters") == 5e-4
    assert rate("--tuning", "lora", "--learning-rate", "1e-3") == 1e-3
