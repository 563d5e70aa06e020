"""ELECTRA from text to a task: a generator and a discriminator in one run, killed, measured, opened by transformers."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from safetensors.torch import load_file, save_file

import osbert
from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.data.step import Cursor
from osbert.interop.folder import open_folder
from osbert.models.contract import Learner, StepSize
from osbert.runs.pretrain.first_weights import build_learner, first_weights
from osbert.runs.pretrain.settings import read_plan
from refusals import refusal
from terminal import run

SIZES = ("--layers", "2", "--model.width", "32", "--heads", "2", "--embedding", "16")
STEPS = ("--steps", "12", "--log-every", "3", "--checkpoint-every", "6", "--device", "cpu", "--precision", "fp32")
SMALL = (*SIZES, *STEPS, "--batch", "16", "--micro-tokens", "300", "--data.length", "24")
ATOL = 2e-5


@pytest.fixture(scope="module")
def electra(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("encoders") / "electra"
    assert run("pretrain", "electra-mini", *SMALL, "--dropout", "0.1", "--corpus", tiny_corpus, "--out", out) == 0
    return out


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_figures_are_of_both_models_held_out_too(electra: Path) -> None:
    lines = metrics(electra)
    for prefix in ("", "held_out."):
        last = {name: value for line in lines for name, value in line.items() if name.startswith(f"{prefix}generator.")}
        assert set(last) == {f"{prefix}generator.loss", f"{prefix}generator.accuracy"}
        line = next(line for line in lines if f"{prefix}replaced.loss" in line)
        assert 0 < line[f"{prefix}replaced.share"] < 0.2 and 0 <= line[f"{prefix}replaced.recall"] <= 1
        assert line[f"{prefix}loss"] == pytest.approx(
            line[f"{prefix}generator.loss"] + 50 * line[f"{prefix}replaced.loss"]
        )
        assert f"{prefix}replaced.accuracy" not in line
    report = (electra / "report.html").read_text()
    lead = report.partition('class="lead">')[2].partition("</p>")[0]
    assert "generator loss is" in lead and "replaced tokens" in lead and "precision" in report


@pytest.mark.parametrize(
    ("name", "kind"), [("", transformers.ElectraForPreTraining), ("generator", transformers.ElectraForMaskedLM)]
)
def test_both_models_give_what_transformers_gives(electra: Path, name: str, kind: type) -> None:
    """The scores of the heads, from the folders as they lie."""
    folder = electra / name
    assert json.loads((folder / "config.json").read_text())["architectures"] == [kind.__name__]
    theirs, report = kind.from_pretrained(folder, output_loading_info=True)  # type: ignore[attr-defined]
    assert not report["missing_keys"] and not report["mismatched_keys"]
    text = osbert.load(folder).tokenizer.vocabulary[10]
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(f"{text} {text} {text}", return_tensors="pt")
    opened = open_folder(folder)
    (head,) = opened.heads.values()
    learner = Learner(opened.backbone, opened.heads).eval()
    ids = inputs["input_ids"][0].numpy()
    flags = np.zeros(len(ids), np.bool_)
    batch = collate([Example(ids=ids, segments=np.zeros(len(ids), np.int8), words=flags, special=flags)])
    with torch.no_grad():
        expected = theirs.eval()(**inputs).logits[0]
        found = head.every(learner.states(batch), batch)
    torch.testing.assert_close(found.view_as(expected), expected, rtol=0, atol=ATOL)


def test_tables_are_those_of_both_and_nothing_else_is(electra: Path) -> None:
    models = [open_folder(folder).backbone.state_dict() for folder in (electra, electra / "generator")]
    same = {name for name in models[0] if torch.equal(models[0][name], models[1][name])}
    assert {name for name in same if models[0][name].ndim == 2} == {
        f"embeddings.{table}.weight" for table in ("pieces", "positions", "segments")
    }


def test_a_model_on_the_way_has_its_generator(tiny_corpus: Path, tmp_path: Path) -> None:
    """The last one is the run's own, with the same bits in both folders, and each opens."""
    out, keep = tmp_path / "kept", ("--models-every", "2", "--steps", "2")
    assert run("pretrain", "electra-mini", *SMALL, *keep, "--corpus", tiny_corpus, "--out", out) == 0
    last = out / "models" / "step-2"
    for name in ("", "generator"):
        assert (last / name / "model.safetensors").read_bytes() == (out / name / "model.safetensors").read_bytes()
        assert len(open_folder(last / name).tokenizer) and open_folder(last / name).heads
    assert open_folder(last).companions == ("generator",)


def test_killed_halfway_it_ends_in_the_same_bits(electra: Path, tiny_corpus: Path, tmp_path: Path) -> None:
    """With dropout, several passes a step and drawn pieces; kills by a signal are test_resume.py's."""
    cut = tmp_path / "cut"
    shutil.copytree(electra, cut)
    for path in (cut / "checkpoints" / "step-12", cut / "generator"):
        shutil.rmtree(path)
    for name in ("model.safetensors", "config.json", "held_out.npz", "report.html"):
        (cut / name).unlink()
    facts = json.loads((cut / "run.json").read_text())
    facts.pop("finished")
    (cut / "run.json").write_text(json.dumps(facts))
    assert run("pretrain", "electra-mini", *SMALL, "--dropout", "0.1", "--corpus", tiny_corpus, "--out", cut) == 0
    for name in ("model.safetensors", "generator/model.safetensors"):
        assert (electra / name).read_bytes() == (cut / name).read_bytes()


def test_it_goes_on_with_both_models(electra: Path, tiny_corpus: Path, tmp_path: Path, capsys) -> None:
    more = ("--from", electra, *STEPS, "--steps", "1", "--learning-rate", "1e-9", "--corpus", tiny_corpus)
    assert run("pretrain", *more, "--out", tmp_path / "more") == 0
    assert "no weights for" not in capsys.readouterr().out
    for name in ("", "generator"):
        before, after = (open_folder(folder / name).tensors for folder in (electra, tmp_path / "more"))
        assert before.keys() == after.keys()
        for tensor in before:
            torch.testing.assert_close(before[tensor], after[tensor], rtol=0, atol=1e-6)
    assert run("pretrain", *more, "--generator", "0.5", "--out", tmp_path / "wider") == 0
    assert "no weights for the generator:" in capsys.readouterr().out


@pytest.mark.parametrize("missing", [["generator"], ["replaced"], ["replaced", "generator"], []])
def test_each_of_the_two_is_filled_whether_the_other_is_there(
    electra: Path, tiny_corpus: Path, tmp_path: Path, missing: list[str]
) -> None:
    """And what is fresh has its own name; a generator that is there keeps its bias, whatever the corpus's counts."""
    origin = tmp_path / "electra"
    shutil.copytree(electra, origin, ignore=shutil.ignore_patterns("checkpoints", "run.json"))
    if "generator" in missing:
        shutil.rmtree(origin / "generator")
    if "replaced" in missing:
        tensors = load_file(origin / "model.safetensors")
        kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("discriminator_predictions")}
        assert kept.keys() < tensors.keys()
        save_file(kept, origin / "model.safetensors", metadata={"format": "pt"})
    plan = read_plan("", {"replaced.unigram_start": True}, corpus=tiny_corpus, origin=origin)
    learner, fresh = first_weights(plan)
    assert fresh == missing
    heads = {"replaced": learner.heads["replaced"], "generator": learner.companions["generator"].heads["generator"]}
    for name, place in (("replaced", electra), ("generator", electra / "generator")):
        (stored,) = open_folder(place).heads.values()
        found = heads[name].state_dict()
        same = [torch.equal(found[key], tensor) for key, tensor in stored.state_dict().items() if key in found]
        assert same and all(same) == (name not in missing)


@pytest.mark.lab
def test_parameters_and_arithmetic_count_the_generator(tiny_corpus: Path) -> None:
    from osbert_lab.planning.speed import training_flops

    plan = read_plan("electra-mini", {"layers": 2, "model.width": 32, "heads": 2, "embedding": 16}, corpus=tiny_corpus)
    learner = build_learner(plan)
    generator = learner.companions["generator"]
    tables = generator.backbone.embeddings
    shared = sum(table.weight.numel() for table in (tables.pieces, tables.positions, tables.segments))
    parts = [sum(weight.numel() for weight in part.parameters()) for part in (learner, learner.backbone, generator)]
    head = sum(weight.numel() for weight in learner.heads["replaced"].parameters())
    assert parts[0] == parts[1] + head + parts[2] - shared
    batches = next(plan.loader(length=64).steps(Cursor())).batches
    size = StepSize.of(learner, batches)
    alone = StepSize.of(generator, [batch.with_targets(generator.heads) for batch in batches])
    assert size.companions == {"generator": alone} and alone.read < size.read == size.tokens
    flops = learner.backbone.flops(size) + learner.heads["replaced"].flops(size.tokens)
    assert training_flops(learner, size) == 3 * flops + training_flops(generator, alone)


def test_its_masks_can_be_looked_at(tiny_corpus: Path, capsys) -> None:
    assert run("corpus", "show", tiny_corpus, "--masks", "2", "--recipe", "electra-mini") == 0
    said = capsys.readouterr().out
    assert "85.00%" in said and "[MASK]←" in said


def test_what_it_cannot_be_joined_with_is_refused(tiny_corpus: Path, tmp_path: Path) -> None:
    with refusal("invalid-setting", "replaced", "mlm"):
        read_plan("electra-mini", {"objectives": ["replaced", "mlm"]}, corpus=tiny_corpus, out=tmp_path / "run")


def test_both_models_are_converted(electra: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    assert run("convert", electra, there, "--to", "huggingface") == 0
    assert run("convert", there, back, "--to", "osbert") == 0
    for name in ("", "generator"):
        first, last = (open_folder(folder / name).tensors for folder in (electra, back))
        kept = {tensor for tensor in first if not tensor.startswith("pooler.")}
        assert kept <= last.keys() and all(torch.equal(first[tensor], last[tensor]) for tensor in kept)


def test_the_discriminator_is_fine_tuned(electra: Path, tmp_path: Path, capsys) -> None:
    texts = osbert.load(electra).tokenizer.vocabulary[5:13]
    rows = [f"{text} {text},{'pos' if place % 2 else 'neg'}" for place, text in enumerate(texts * 3)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    quick = ("--epochs", "1", "--batch", "8", "--device", "cpu", "--precision", "fp32")
    out = tmp_path / "run"
    assert run("finetune", "classify", *quick, "--model", electra, "--data", tmp_path / "rows.csv", "--out", out) == 0
    assert json.loads((out / "config.json").read_text())["architectures"] == ["ElectraForSequenceClassification"]
    assert osbert.load(out).predict([texts[0]])[0].value in ("pos", "neg")
    assert osbert.load(electra).embed([texts[0]]).shape == (1, 32)
