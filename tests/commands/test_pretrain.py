"""osbert pretrain on a tiny corpus: what it writes, what it refuses, and how it goes on."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import corpora
from osbert import cli, recipe
from osbert.console.recipe_options import recipe_and_settings
from osbert.corpus.build import UNKNOWN_LIMIT
from osbert.corpus.shards import Corpus
from osbert.interop.folder import open_folder
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.runs.pretrain.settings import read_settings
from osbert.training import checkpoint
from osbert.training.trainer import Trainer
from refusals import refusal, refused
from terminal import told
from vocabularies import train

TINY = """
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
[training]
steps = 6
log_every = 2
checkpoint_every = 2
evaluate_every = 3
precision = "fp32"
device = "cpu"
"""


def build_corpus(folder: Path, *, seed: int) -> Path:
    rng = random.Random(seed)
    words = [first + second for first in ("ba", "ke", "lo", "mi", "nu", "pa") for second in ("da", "fe", "gi", "ho")]
    documents = [
        " ".join(" ".join(rng.choice(words) for _ in range(rng.randint(4, 9))) + "." for _ in range(8))
        for _ in range(20)
    ]
    tokenizer = train([" ".join(words) + " ."] * 3, vocabulary=80)
    return corpora.build_corpus(folder, documents, tokenizer)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_corpus(tmp_path_factory.mktemp("texts") / "one", seed=1)


@pytest.fixture
def run(tmp_path, corpus, capsys):
    """Run `osbert pretrain` on a tiny recipe; return (status, output, error, folder)."""
    toml = tmp_path / "tiny.toml"
    toml.write_text(TINY)

    def run(*settings: str, out: str = "run", on: Path = corpus, by: str | Path = toml) -> SimpleNamespace:
        words = ["pretrain", by, "--corpus", on, "--out", tmp_path / out, *settings]
        return told(capsys, *words, folder=tmp_path / out)

    return run


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_run_folder_stands_alone(run, corpus) -> None:
    done = run()
    assert done.status == 0, done.error
    assert "mlm" in done.output
    assert "tokens/s" in done.output
    assert "cpu fp32" in done.output
    assert "held out" in done.output
    found = {path.name for path in done.folder.iterdir()}
    wanted = "config.json model.safetensors tokenizer.json vocab.txt tokenizer_config.json recipe.toml metrics.jsonl"
    assert found >= {*wanted.split(), "report.html", "run.json", "checkpoints"}
    assert {path.name for path in (done.folder / "checkpoints").iterdir()} == {"step-4", "step-6"}
    assert read_tokenizer(done.folder) == read_tokenizer(corpus)
    assert open_folder(done.folder).backbone.architecture.width == 16
    training = [line for line in lines(done.folder) if "learning_rate" in line]
    assert [line["step"] for line in training] == [2, 4, 6]
    assert {"loss", "mlm.loss", "mlm.accuracy", "nsp.loss", "nsp.accuracy", "gradient_norm"} <= set(training[0])
    held_out = [line for line in lines(done.folder) if "held_out.loss" in line]
    assert [line["step"] for line in held_out] == [3, 6]
    assert "unigram entropy" in (done.folder / "report.html").read_text()


def test_the_saved_recipe_gives_the_same_run(run) -> None:
    first = run("--steps", "3", "--mlm.rate=0.3", "--no-unigram-start", out="first")
    second = run(out="second", by=first.folder / "recipe.toml")
    assert second.status == 0, second.error
    assert (first.folder / "recipe.toml").read_text() == (second.folder / "recipe.toml").read_text()
    assert (first.folder / "model.safetensors").read_bytes() == (second.folder / "model.safetensors").read_bytes()


def test_a_finished_run_says_so(run) -> None:
    first = run("--steps", "2")
    before = (first.folder / "model.safetensors").stat().st_mtime_ns
    again = run("--steps", "2")
    assert again.status == 0
    assert "is finished" in again.output
    assert (first.folder / "model.safetensors").stat().st_mtime_ns == before


def test_other_settings_are_refused_with_the_difference(run) -> None:
    run("--steps", "2")
    other = run("--steps", "2", "--layers", "2", "--mlm.rate", "0.5")
    refused(other, "begun-with-other-settings", "model.layers: 1 -> 2", "mlm.rate: 0.15 -> 0.5")


def test_settings_that_change_no_weight_may_differ(run) -> None:
    run("--steps", "2")
    assert run("--steps", "2", "--log-every", "1", "--keep", "5", "--evaluate-every", "9").status == 0


def test_a_corpus_of_unknown_pieces_is_warned_of_before_the_training(run, tmp_path, corpus) -> None:
    assert Corpus.open(corpus).report["unknown_rate"] <= UNKNOWN_LIMIT and "[UNK]" not in run(out="known").output
    tokenizer = train(["ba da ."] * 3, vocabulary=80)
    lacking = corpora.build_corpus(tmp_path / "lacking", ["好 的 电影. ba " * 8] * 20, tokenizer)
    made = run("--training.steps", "1", on=lacking)
    assert Corpus.open(lacking).report["unknown_rate"] > UNKNOWN_LIMIT
    assert made.status == 0 and "are [UNK]" in made.output


def test_another_corpus_is_refused(run, tmp_path) -> None:
    run("--steps", "2")
    other = run("--steps", "2", on=build_corpus(tmp_path / "other", seed=2))
    refused(other, "begun-with-other-settings", "corpus: ")


def test_the_same_corpus_elsewhere_is_the_same(run, tmp_path, corpus) -> None:
    run("--steps", "2")
    shutil.copytree(corpus, tmp_path / "moved")
    assert "is finished" in run("--steps", "2", on=tmp_path / "moved").output


def test_a_folder_with_something_else_is_refused(run, tmp_path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    done = run()
    refused(done, "output-holds-something-else", "config.json")
    assert (tmp_path / "run" / "config.json").read_text() == "{}"


def test_a_damaged_checkpoint_is_named_and_the_run_ends_the_same(run) -> None:
    whole = run(out="whole")
    cut = run(out="cut")
    for name in ("model.safetensors", "config.json"):
        (cut.folder / name).unlink()
    facts = json.loads((cut.folder / "run.json").read_text())
    del facts["finished"]
    (cut.folder / "run.json").write_text(json.dumps(facts))
    path = cut.folder / "checkpoints" / "step-6" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    again = run(out="cut")
    assert again.status == 0, again.error
    assert "step-6 is damaged (weights.safetensors" in again.output
    assert "Going on from the checkpoint of step 4." in again.output
    assert (whole.folder / "model.safetensors").read_bytes() == (cut.folder / "model.safetensors").read_bytes()
    assert [line["step"] for line in lines(cut.folder)] == [line["step"] for line in lines(whole.folder)]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_wish_to_stop_is_told_how_to_go_on(run, monkeypatch, number, status) -> None:
    advance = Trainer._advance

    def interrupted(self, step, started):
        if self.step == 2:
            os.kill(os.getpid(), number)
        return advance(self, step, started)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_advance", interrupted)
        stopped = run(out="cut")
    assert stopped.status == status
    assert "Stopped after step 3 of 6. The same command goes on from step 3." in stopped.output
    assert not (stopped.folder / "model.safetensors").exists()
    again, whole = run(out="cut"), run(out="whole")
    assert "Going on from the checkpoint of step 3." in again.output
    assert (whole.folder / "model.safetensors").read_bytes() == (again.folder / "model.safetensors").read_bytes()


def test_a_full_disk_is_told_twice_and_training_goes_on(run, monkeypatch) -> None:
    write = checkpoint.save_file

    def full(tensors, path) -> None:
        if "step-2" not in str(path):
            raise OSError(28, "No space left on device")
        write(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", full)
    done = run()
    assert done.status == 0, done.error
    message = "The checkpoint of step 4 could not be written; the one of step 2 is kept."
    assert message in done.output
    assert f"Remember: {message}" in done.output
    assert [path.name for path in (done.folder / "checkpoints").iterdir()] == ["step-2"]
    assert (done.folder / "model.safetensors").exists()


def test_a_loss_that_is_not_finite_ends_the_run(run, monkeypatch) -> None:
    done = run("--learning-rate", "1e38", "--warmup", "0", "--steps", "30", "--weight-decay", "0")
    refused(done, "training-diverged", "3 steps", "--learning-rate", 1e38)
    assert list(done.folder.glob("failed-step-*.npz"))
    assert not (done.folder / "model.safetensors").exists()


def test_all_problems_are_told_before_anything_is_written(run) -> None:
    done = run("--heads", "3", "--data.length", "500", "--model.vocabulary", "7", "--device", "abacus")
    refused(done, "invalid-setting", "heads", "data.length is 500", "model.vocabulary is 7", "abacus")
    assert {"invalid-value", "unavailable-device"} <= {*done.codes}
    assert not done.folder.exists()


@pytest.mark.parametrize("objective", ["nsp", "sentence_order"])
def test_pairs_need_a_second_segment(run, objective) -> None:
    done = run("--objectives", f"mlm,{objective}", "--model.segments", "1")
    refused(done, "invalid-setting", objective, "model.segments = 2")
    assert run("--objectives", "mlm", "--model.segments", "1", "--steps", "1").status == 0


def test_a_file_is_no_run_folder(run, tmp_path) -> None:
    (tmp_path / "run").write_text("mine")
    done = run()
    refused(done, "output-is-file", tmp_path / "run", "--out")
    assert (tmp_path / "run").read_text() == "mine"


def test_two_objectives_that_lay_out_sequences_are_refused(run) -> None:
    done = run("--objectives", "nsp,mlm,sentence_order")
    refused(done, "invalid-setting", "nsp", "sentence_order")
    assert not done.folder.exists()


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("--data.streams", "--objectives", "nsp"), "invalid-setting", "nsp"),
        (("--model.memory", "8", "--objectives", "mlm"), "invalid-setting", "model.memory is 8"),
        pytest.param(
            *(("--data.streams", "--objectives", "mlm", "--data.batch", "9000"), "too-little-data", "9,000 streams"),
            marks=pytest.mark.lab,
        ),
    ],
)
def test_streams_that_cannot_be_are_refused(run, words, code, named) -> None:
    done = run(*words)
    refused(done, code, named)
    assert not done.folder.exists()


def test_what_needs_the_text_as_it_is_comes_before_noise(run) -> None:
    sizes = ("--model.direction", "left_to_right", "--steps", "1")
    done = run("--objectives", "mlm,left_to_right", *sizes)
    refused(done, "invalid-setting", "left_to_right", "mlm")
    assert run("--objectives", "left_to_right,mlm", *sizes).status == 0


def test_wrong_settings_name_the_nearest(run) -> None:
    refused(run("--learning-rat", "1"), "unknown-setting", "learning_rat", "'learning_rate'")
    refused(run("--schedule", "linaer"), "invalid-value", "optimizer.schedule", "linear", "linaer")
    refused(run("--seed", "1"), "ambiguous-setting", "--data.seed", "--training.seed")
    refused(run("--objectives", "mlmm"), "unknown-component", "'mlmm'", "mlm")
    refused(run("--objectives", ""), "invalid-value", "objectives")
    refused(run(by="bert-bse"), "unknown-recipe", "bert-bse", "bert-base")


def test_losses_are_weighted_and_each_is_in_the_log_by_its_name(run) -> None:
    plain = run("--steps", "2", "--log-every", "1")
    done = run("--nsp.weight", "0.25", "--steps", "2", "--log-every", "1", out="weighted")
    assert "mlm + 0.25 x nsp" in done.output
    first, before = (lines(folder)[0] for folder in (done.folder, plain.folder))
    assert first["nsp.loss"] == before["nsp.loss"] and first["mlm.loss"] == before["mlm.loss"]
    assert first["loss"] == pytest.approx(first["mlm.loss"] + 0.25 * first["nsp.loss"])
    last = lines(done.folder)[-1]
    assert last["held_out.loss"] == pytest.approx(last["held_out.mlm.loss"] + 0.25 * last["held_out.nsp.loss"])
    weights = [open_folder(folder).backbone.state_dict() for folder in (done.folder, plain.folder)]
    assert not torch.equal(*(one["pooler.weight"] for one in weights))
    refused(run("--nsp.weight", "0", out="none"), "invalid-setting", "nsp.weight", "0.0")


def test_one_objective_alone(run) -> None:
    refused(run("--objectives", "mlm", "--steps", "2", "--no-nonsense"), "unknown-setting", "nonsense")
    done = run("--objectives", "mlm", "--steps", "2")
    assert done.status == 0, done.error
    assert not any("nsp.loss" in line for line in lines(done.folder))
    assert "[nsp]" not in (done.folder / "recipe.toml").read_text()


def test_a_corpus_with_another_tokenizer_is_refused(run, tmp_path, corpus) -> None:
    shutil.copytree(corpus, tmp_path / "mixed")
    tokenizer = read_tokenizer(corpus)
    swapped = [*tokenizer.vocabulary[:-2], tokenizer.vocabulary[-1], tokenizer.vocabulary[-2]]
    write_tokenizer(type(tokenizer)(swapped), tmp_path / "mixed")
    done = run(on=tmp_path / "mixed")
    refused(done, "mismatched-tokenizer", tmp_path / "mixed")


def test_the_corpus_folder_is_no_run_folder(run, tmp_path, corpus) -> None:
    shutil.copytree(corpus, tmp_path / "both")
    done = run(on=tmp_path / "both", out="both")
    refused(done, "output-is-input", "--out", tmp_path / "both")


def test_a_second_process_is_refused(run, tmp_path) -> None:
    hold = (
        "import sys; from pathlib import Path; from osbert.lock import hold_lock\n"
        "with hold_lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", hold, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        done = run()
        refused(done, "output-in-use", holder.pid)
        holder.communicate("\n")


def test_the_first_loss_is_the_unigram_entropy_when_so_begun(run, corpus) -> None:
    done = run("--mlm.unigram-start", "--steps", "1", "--batch", "64")
    assert lines(done.folder)[0]["mlm.loss"] == pytest.approx(Corpus.open(corpus).unigram_entropy, abs=0.15)
    plain = run("--steps", "1", "--batch", "64", out="plain")
    size = len(read_tokenizer(corpus))
    assert lines(plain.folder)[0]["mlm.loss"] == pytest.approx(math.log(size), abs=0.15)


@pytest.mark.parametrize("setting", ["--data.seed", "--training.seed"])
def test_each_seed_changes_the_run(run, setting) -> None:
    results = {run("--steps", "1", setting, seed, out=f"run{seed}").folder for seed in ("0", "1")}
    assert len({lines(folder)[0]["loss"] for folder in results}) == 2


def test_help_lists_every_setting(run, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["pretrain", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, _, _ in recipe.fields(type(read_settings("bert-base"))):
        assert f"--{name.replace('_', '-')} " in shown
    assert "How many blocks stand on each other." in shown


def test_settings_are_read_strictly() -> None:
    with refusal("invalid-value"):
        read_settings(*recipe_and_settings(["cpu", "--layers", "two"]))
    assert read_settings(*recipe_and_settings(["cpu", "--layers=7"])).model.layers == 7
