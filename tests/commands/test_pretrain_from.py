"""osbert pretrain --from: an encoder goes on with another corpus, more pieces included, and both texts are measured."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import corpora
from osbert import recipe
from osbert.files import write_json
from osbert.interop.files.weight_files import write_tensors
from osbert.interop.folder import open_folder
from osbert.interop.huggingface.folders import to_huggingface, write_model
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.models.contract import Learner
from osbert.runs.pretrain.first_weights import build_learner
from osbert.runs.pretrain.settings import read_plan
from osbert.text.extend import add_words
from osbert.text.tokenizer import Tokenizer
from osbert.training.run_folder import RunFolder
from terminal import run
from vocabularies import train

RECIPE = """
objectives = ["mlm", "nsp"]
[model]
layers = 1
width = 16
heads = 2
length = 24
[data]
batch = 4
length = 24
held_out = 0.05
[mlm]
unigram_start = true
[training]
steps = 4
log_every = 2
checkpoint_every = 0
evaluate_every = 2
precision = "fp32"
device = "cpu"
"""
SYLLABLES = ("da", "fe", "gi", "ho", "ku")


def words(first: str) -> list[str]:
    return [letter + syllable for letter in first for syllable in SYLLABLES]


def corpus(folder: Path, letters: str, tokenizer: Tokenizer) -> Path:
    rng = random.Random(letters)
    lines = [
        " ".join(" ".join(rng.choices(words(letters), k=rng.randint(4, 9))) + "." for _ in range(8)) for _ in range(20)
    ]
    return corpora.build_corpus(folder, lines, tokenizer)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of a finished run and of other corpora, one of them with more pieces."""
    base = tmp_path_factory.mktemp("from")
    (base / "tiny.toml").write_text(RECIPE, encoding="utf-8")
    tokenizer = train([" ".join(words("bklmn")) + " ."] * 3, vocabulary=60)
    more = add_words(tokenizer, dict.fromkeys(words("mn"), 20), pieces=8)
    found = {
        "old": corpus(base / "old", "bkl", tokenizer),
        "new": corpus(base / "new", "lmn", tokenizer),
        "more": corpus(base / "more", "lmn", more),
        "run": base / "run",
    }
    arguments = ["pretrain", str(base / "tiny.toml"), "--corpus", str(found["old"]), "--out", str(found["run"])]
    assert run(*arguments) == 0
    return found


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


def go_on(folders: dict[str, Path], corpus: str, out: Path, *settings: str) -> int:
    return run("pretrain", "--from", folders["run"], "--corpus", folders[corpus], "--out", out, *settings)


def test_both_texts_are_measured_from_before_the_first_step_to_the_last(folders, tmp_path, capsys) -> None:
    assert go_on(folders, "new", tmp_path / "out", "--steps", "6") == 0
    last = [line for line in lines(folders["run"]) if "held_out.loss" in line][-1]
    before = [line for line in lines(tmp_path / "out") if "held_out_before.loss" in line]
    here = [line for line in lines(tmp_path / "out") if "held_out.loss" in line]
    assert [line["step"] for line in before] == [line["step"] for line in here] == [0, 2, 4, 6]
    for name in ("mlm.loss", "mlm.accuracy", "nsp.loss", "nsp.accuracy"):
        assert before[0][f"held_out_before.{name}"] == pytest.approx(last[f"held_out.{name}"], abs=1e-5)
    assert before[-1] != {**before[0], "step": 6}
    assert "held out of the corpus before: loss" in capsys.readouterr().out
    report = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "on the one before" in report and "corpus before" in report


def test_it_goes_on_with_the_weights_and_every_old_row_when_pieces_were_added(folders) -> None:
    old = open_folder(folders["run"]).backbone.state_dict()
    plan = read_plan("", {}, corpus=folders["more"], origin=folders["run"])
    learner = build_learner(plan)
    state = learner.backbone.state_dict()
    size = len(old["embeddings.pieces.weight"])
    assert len(state["embeddings.pieces.weight"]) == len(plan.tokenizer) > size
    for name, tensor in old.items():
        torch.testing.assert_close(state[name][: len(tensor)], tensor, rtol=0, atol=0)
    # "mda" was cut to pieces before: its row is their mean, and so is the bias of its score.
    piece = plan.tokenizer.vocabulary[size]
    spelt = plan.origin.tokenizer.encode(piece).tolist()
    assert len(spelt) > 1
    rows, bias = state["embeddings.pieces.weight"], learner.heads["mlm"].bias
    torch.testing.assert_close(rows[size], rows[spelt].mean(dim=0))
    torch.testing.assert_close(bias[size], bias[spelt].mean())


def test_a_run_with_added_pieces_ends_and_opens(folders, tmp_path) -> None:
    assert go_on(folders, "more", tmp_path / "out") == 0
    size = open_folder(folders["run"]).backbone.architecture.vocabulary
    assert open_folder(tmp_path / "out").backbone.architecture.vocabulary == len(read_tokenizer(folders["more"])) > size
    tokens = [RunFolder(folder).pretraining_tokens for folder in (tmp_path / "out", folders["run"])]
    assert tokens == [2 * 4 * 4 * 24, 4 * 4 * 24]
    assert go_on(folders, "more", tmp_path / "out") == 0  # finished: nothing is left to do


def test_other_weights_cannot_go_on_with_a_run(folders, tmp_path, capsys) -> None:
    assert go_on(folders, "new", tmp_path / "out", "--steps", "2") == 0
    arguments = [str(folders["run"] / "recipe.toml"), "--steps", "2", "--corpus", str(folders["new"])]
    assert run("pretrain", *arguments, "--out", str(tmp_path / "out")) == 1
    assert "origin" in capsys.readouterr().err


def test_all_that_does_not_fit_is_told_at_once(folders, tmp_path, capsys) -> None:
    other = corpus(tmp_path / "other", "bk", train([" ".join(words("bk")) + " ."] * 3, vocabulary=50))
    settings = ["--model.layers", "2", "--model.length", "64", "--model.dropout", "0"]
    arguments = ["pretrain", "--from", str(folders["run"]), "--corpus", str(other), "--out", str(folders["run"])]
    assert run(*arguments, *settings) == 1
    error = capsys.readouterr().err
    for part in (
        "same folder",
        "model.layers is 2",
        "model.length is 64",
        "a tokenizer other than",
        "tokenizer extend",
    ):
        assert part in error
    assert "dropout" not in error


def test_an_encoder_without_heads_or_held_out_text_says_so(folders, tmp_path, capsys) -> None:
    plan = read_plan("", {}, corpus=folders["new"], origin=folders["run"])
    bare = tmp_path / "bare"
    write_model(Learner(open_folder(folders["run"]).backbone, {}), bare)
    write_tokenizer(plan.tokenizer, bare, length=24)
    arguments = ["--from", str(bare), "--corpus", str(folders["new"]), "--out", str(tmp_path / "out")]
    torch.save(load_file(bare / "model.safetensors"), bare / "pytorch_model.bin")  # an older folder's weights
    (bare / "model.safetensors").unlink()
    assert run("pretrain", str(folders["run"] / "recipe.toml"), *arguments) == 0
    assert "keeps no held-out text" in capsys.readouterr().out
    fresh = build_learner(read_plan(str(folders["run"] / "recipe.toml"), {}, corpus=folders["new"], origin=bare))
    assert fresh.heads["mlm"].bias.std() > 0.1  # the unigrams of the new corpus
    kept = build_learner(plan)
    assert not torch.equal(kept.heads["mlm"].bias, fresh.heads["mlm"].bias)


def test_a_recipe_or_a_run_must_be_named(folders, tmp_path, capsys) -> None:
    assert run("pretrain", "--corpus", str(folders["new"]), "--out", str(tmp_path / "out"), "--steps", "3") == 1
    assert "--from" in capsys.readouterr().err
    nothing = ["--from", str(tmp_path), "--corpus", str(folders["new"]), "--out", str(tmp_path / "out")]
    assert run("pretrain", *nothing) == 1 and str(tmp_path) in capsys.readouterr().err


def published(folders: dict[str, Path], folder: Path) -> Path:
    """Return an encoder as sentence-transformers publishes it: no recipe, no head, no pooler."""
    plan = read_plan("", {}, corpus=folders["new"], origin=folders["run"])
    folder.mkdir()
    config, tensors = to_huggingface(Learner(open_folder(folders["run"]).backbone, {}), pooler=False)
    write_json(folder / "config.json", config)
    write_tensors(tensors, folder / "model.safetensors")
    write_tokenizer(plan.tokenizer, folder, length=24)
    return folder


def test_a_published_encoder_goes_on_without_a_recipe(folders, tmp_path, capsys) -> None:
    origin, out = published(folders, tmp_path / "published"), tmp_path / "out"
    settings = ["--data.length", "24", "--steps", "2", "--batch", "4", "--precision", "fp32", "--device", "cpu"]
    assert run("pretrain", "--from", origin, "--corpus", folders["new"], "--out", out, *settings) == 0
    told = capsys.readouterr().out
    assert "no weights for the head of mlm" in told and "in place of" not in told
    kept = recipe.read(out / "recipe.toml")
    assert kept["objectives"] == ["mlm"] and kept["optimizer"]["learning_rate"] == 5e-5
    before, after = (open_folder(folder).backbone.state_dict() for folder in (origin, out))
    moved = [(after[name] - before[name]).abs().max() for name in before if not name.startswith("pooler.")]
    assert 0 < max(moved) < 2 * 2 * 5e-5  # AdamW moves a weight by about the rate in each of two steps
    # A model that was fine-tuned has a recipe, but none for pretraining.
    (origin / "recipe.toml").write_text('task = "classify"\n[classify]\nlabels = ["a", "b"]\n')
    assert read_plan("", {"data.length": 24}, corpus=folders["new"], origin=origin).settings.objectives == ("mlm",)


@pytest.mark.parametrize(
    ("name", "given", "rate", "muon"),
    [
        ("cpu", {}, 5e-5, None),
        ("cpu", {"learning_rate": 2e-4}, 2e-4, None),
        ("bert-fast", {}, 5e-5, 0.02 * 5e-5 / 3e-3),
        ("bert-fast", {"muon_rate": 0.01}, 5e-5, 0.01),
        ("own", {}, 7e-4, None),
        ("", {}, 5e-5, None),
    ],
)
def test_a_recipes_rate_gives_way_to_one_that_keeps_and_the_users_does_not(
    folders, tmp_path, name, given, rate, muon
) -> None:
    if name == "own":
        name = str(tmp_path / "own.toml")
        Path(name).write_text(RECIPE + "[optimizer]\nlearning_rate = 7e-4\n")
    plan = read_plan(name, {"data.length": 24, **given}, corpus=folders["new"], origin=folders["run"])
    assert plan.settings.optimizer.learning_rate == pytest.approx(rate)
    assert muon is None or plan.settings.optimizer.muon_rate == pytest.approx(muon)
    assert len(plan.remarks) == (rate == 5e-5) + (muon == 0.02 * 5e-5 / 3e-3)
    alone = read_plan(name, {"data.length": 24, **given}, corpus=folders["new"]) if name else None
    assert alone is None or alone.remarks == ()  # fresh weights have the recipe's
