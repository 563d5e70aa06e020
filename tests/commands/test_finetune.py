"""osbert finetune: it learns, says what it found, keeps the best epoch, and goes on after a stop."""

from __future__ import annotations

import errno
import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from clock import CLOCK
from osbert import recipe
from osbert.commands.finetune import finetune
from osbert.console.training_consoles import ProgressLine
from osbert.inference.engine import load
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import read_tokenizer, write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.models.fast.dropout import Dropout
from osbert.models.transformer.attention import Attention
from osbert.options import parse_settings
from osbert.runs.events import Epoch
from osbert.runs.finetune.finetune import finetune as finetune_task
from osbert.runs.finetune.model import read_model
from osbert.runs.finetune.plan import read_plan, schema
from osbert.runs.finetune.settings import FinetuneSettings
from osbert.tasks.kinds.classify import Classify
from osbert.training.progress import Progress
from osbert.training.tracking import read_lines
from osbert.training.trainer import Trainer
from refusals import refusal


def lines(folder: Path) -> list[dict[str, object]]:
    """Return the lines of metrics.jsonl without what depends on the clock."""
    return [{k: v for k, v in line.items() if k not in CLOCK} for line in read_lines(folder / "metrics.jsonl")]


def facts(folder: Path) -> dict[str, object]:
    return json.loads((folder / "run.json").read_text())["finished"]["best"]


def test_it_learns_and_the_run_folder_stands_alone(run: Path) -> None:
    best = facts(run)
    assert best["metrics"]["accuracy"] == 1
    for name in ("config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "recipe.toml", "report.html"):
        assert (run / name).is_file()
    assert not list(run.glob("best-epoch-*")) and not list(run.glob(".*.part"))
    assert json.loads((run / "config.json").read_text())["id2label"] == {"0": "neg", "1": "pos"}
    table = recipe.read(run / "recipe.toml")
    assert table["task"] == "classify" and table["classify"]["labels"] == ["neg", "pos"]
    assert (table["classify"]["text"], table["classify"]["label"]) == ("text", "label")
    report = (run / "report.html").read_text()
    assert "<svg" in report and "macro_f1" in report and "<h2>By label</h2>" in report
    epochs = [line for line in lines(run) if "epoch" in line]
    assert [line["epoch"] for line in epochs] == [1, 2, 3, 4, 5, 6]
    assert {"dev.accuracy", "dev.f1/neg", "train.loss", "step"} <= set(epochs[0])


def test_it_says_what_it_found(
    encoder: Path, table: Path, settings: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finetune("classify", *settings, "--length", "6", "--epochs", "1", model=encoder, data=table, out=tmp_path / "run")
    said = " ".join(capsys.readouterr().out.split())
    for fragment in (
        "comma-separated, header, UTF-8; columns: text, label",
        "text from 'text', label from 'label'",
        "no file for development: 10% of the training rows, drawn label by label, are held out",
        "train: 180 rows (neg ",
        "are longer than 6 tokens",
        "epoch 1 training loss",
        "F1 of each class: neg",
    ):
        assert fragment in said


def test_the_best_epoch_is_kept(
    encoder: Path, table: Path, settings: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With scores that fall after the third epoch, the model is the third epoch's, though the second was as good.

    An epoch whose score is no number is never the best.
    """
    scores = iter([float("nan"), 0.9, 0.9, 0.4, 0.3, float("nan")])
    states: list[dict[str, torch.Tensor]] = []

    def metrics(self: Classify, predictions: object, records: object) -> dict[str, float]:
        return {"accuracy": next(scores, 0.9)}  # the report's come after those of the epochs

    def watch(event: object) -> None:
        if isinstance(event, Epoch):
            states.append({name: value.clone() for name, value in learner[0].backbone.state_dict().items()})

    learner, begin = list[torch.nn.Module](), Trainer.__init__

    def remember(self: Trainer, made: torch.nn.Module, *rest: object) -> None:
        learner.append(made)
        begin(self, made, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Classify, "metrics", metrics)
    monkeypatch.setattr("osbert.runs.finetune.training_loop.score_intervals", lambda *given: {})
    monkeypatch.setattr(Trainer, "__init__", remember)
    more = parse_settings([*settings, "--keep", "best"], schema("classify"))
    finetune_task("classify", model=encoder, data=table, out=tmp_path / "run", watch=watch, **more)
    assert facts(tmp_path / "run")["epoch"] == 3
    kept = load(tmp_path / "run").learner.backbone.state_dict()
    assert len(states) == 6 and all(torch.equal(kept[name], value) for name, value in states[2].items())
    assert not all(torch.equal(kept[name], value) for name, value in states[-1].items())


def test_of_equal_epochs_one_that_has_collapsed_is_not_kept(
    encoder: Path, table: Path, settings: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, scored = ["'neg'", "", "'neg'"], list[float]()

    def metrics(*given: object) -> dict[str, float]:
        return {"accuracy": scored.append(0.5) or 0.5}

    monkeypatch.setattr(Classify, "metrics", metrics)
    monkeypatch.setattr("osbert.runs.finetune.training_loop.score_intervals", lambda *given: {})
    monkeypatch.setattr("osbert.runs.finetune.rows.constant_answer", lambda *given: answers[len(scored) - 1])
    finetune("classify", *settings, "--epochs", "3", "--keep", "best", model=encoder, data=table, out=tmp_path / "run")
    assert facts(tmp_path / "run")["epoch"] == 2 and not facts(tmp_path / "run")["collapsed"]


class Killed(Exception):
    """Stands for a power cut: nothing is written after it."""


@pytest.mark.parametrize("step", [3, 17, 36])
def test_a_stopped_run_ends_in_the_same_weights(
    run: Path, encoder: Path, table: Path, settings: Sequence[str], tmp_path: Path, step: int
) -> None:
    out = tmp_path / "run"
    often = (*settings, "--checkpoint-every", "5")

    def watch(event: object) -> None:
        stop(isinstance(event, Progress) and event.step == step)

    with pytest.raises(Killed):
        finetune_task(
            "classify", model=encoder, data=table, out=out, watch=watch, **parse_settings(often, schema("classify"))
        )
    finetune("classify", *often, model=encoder, data=table, out=out)
    assert (out / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert lines(out) == lines(run)


def stop(now: bool) -> None:
    if now:
        raise Killed


def test_a_finished_run_is_not_repeated_and_others_are_refused(
    run: Path, encoder: Path, table: Path, settings: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (run / "model.safetensors").stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", lambda self: stop(True))
        finetune("classify", *settings, model=encoder, data=table, out=run)
    assert (run / "model.safetensors").stat().st_mtime_ns == before
    with refusal("begun-with-other-settings", "training.epochs", "6", "7"):
        finetune("classify", *settings, "--epochs", "7", model=encoder, data=table, out=run)
    other = tmp_path / table.name
    other.write_text(table.read_text() + "a bad film,neg\n")
    with refusal("begun-with-other-settings"):
        finetune("classify", *settings, model=encoder, data=other, out=run)


def test_from_scratch_starts_from_fresh_weights_of_the_same_sizes(encoder: Path, table: Path, tmp_path: Path) -> None:
    slow = ("--epochs", "1", "--learning-rate", "1e-9", "--precision", "fp32")
    finetune("classify", *slow, model=encoder, data=table, out=tmp_path / "tuned")
    finetune("classify", *slow, model=encoder, data=table, out=tmp_path / "fresh", from_scratch=True)
    first, tuned, fresh = (
        load_file(folder / "model.safetensors") for folder in (encoder, tmp_path / "tuned", tmp_path / "fresh")
    )
    name = "embeddings.word_embeddings.weight"
    assert torch.allclose(tuned[f"bert.{name}"], first[name], atol=1e-6)
    assert fresh[f"bert.{name}"].shape == first[name].shape
    assert not torch.allclose(fresh[f"bert.{name}"], first[name], atol=1e-3)
    assert recipe.read(tmp_path / "fresh" / "recipe.toml")["from_scratch"] is True


def test_pairs_class_weights_and_a_folder(encoder: Path, tmp_path: Path) -> None:
    rows = [f"a film\tgood play\t{'same' if n % 4 else 'other'}" for n in range(24)]
    for name in ("train.tsv", "valid.tsv"):
        (tmp_path / name).write_text("\n".join(["premise\thypothesis\tlabel", *rows]) + "\n")
    out = tmp_path / "run"
    finetune("classify", "--class-weights", "balanced", "--epochs", "1", model=encoder, data=tmp_path, out=out)
    settings = recipe.read(out / "recipe.toml")["classify"]
    assert settings["weights"] == pytest.approx([2, 2 / 3])
    assert settings["pair"] == "hypothesis"
    assert load(out).predict([("a film", "good play")])[0].value in ("same", "other")


def test_pairs_need_a_second_segment(encoder: Path, tmp_path: Path) -> None:
    tokenizer = read_tokenizer(encoder)
    sizes = Architecture(layers=1, heads=2, width=16, vocabulary=len(tokenizer), length=24, segments=1)
    write_model(Learner(sizes.build(), {}), tmp_path / "one")
    write_tokenizer(tokenizer, tmp_path / "one", length=24)
    (tmp_path / "all.csv").write_text("text,pair,label\n" + "a film,good play,yes\nbad,film,no\n" * 12)
    (tmp_path / "single.csv").write_text("text,label\n" + "a film,yes\nbad,no\n" * 12)
    with refusal("unsupported-model"):
        finetune("classify", "--pair", "pair", model=tmp_path / "one", data=tmp_path / "all.csv", out=tmp_path / "run")
    with refusal("unsupported-model"):
        load(tmp_path / "one").embed([("a film", "good play")])
    settings = ("--epochs", "1", "--precision", "fp32")
    finetune("classify", *settings, model=tmp_path / "one", data=tmp_path / "single.csv", out=tmp_path / "single")


def test_regression(encoder: Path, tmp_path: Path) -> None:
    words = {"good": 30.0, "fine": 20.0, "poor": 10.0, "bad": 0.0}
    rows = [f'{{"text": "the {word} film", "score": {value}}}' for word, value in words.items()] * 20
    (tmp_path / "all.jsonl").write_text("\n".join(rows) + "\n")
    out = tmp_path / "run"
    finetune(
        "regress", "--epochs", "12", "--learning-rate", "1e-2", "--precision", "fp32", "--batch", "8",
        model=encoder, data=tmp_path / "all.jsonl", out=out,
    )  # fmt: skip
    assert facts(out)["metrics"]["r2"] > 0.6
    bad, good = load(out).predict(["the bad film", "the good film"])
    assert good.value - bad.value > 15 and not bad.probabilities


@pytest.mark.parametrize(
    ("task", "settings", "refused"),
    [
        ("clasify", (), ("unknown-component", "'clasify'", "tasks", "'classify'")),
        ("classify", ("--epoch", "3"), ("unknown-setting", "--epoch", "epochs'")),
        ("classify", ("--epochs", "three"), ("invalid-value", "'training.epochs'", "integer", "'three'")),
        ("classify", ("--epochs", "0"), ("invalid-setting", "epochs", "1")),
        ("classify", ("--header", "maybe"), ("invalid-value", "header", "'auto', 'yes', 'no'", "'maybe'")),
        ("classify", ("--text", "texts"), ("unknown-column", "'texts'")),
        ("classify", ("--length", "3"), ("invalid-setting", "length", "5", "3")),
        ("classify", ("--length", "-1"), ("invalid-setting", "length", "5", "-1")),
        ("classify", ("--seed", "-1"), ("invalid-setting", "seed", "0", "-1")),
        ("classify", ("--dropout", "1.5"), ("invalid-setting", "dropout", "0", "1.5")),
        ("classify", ("--weights", "1,2,3"), ("wrong-number-of-values", "--weights", "3", "2", "neg, pos")),
        ("classify", ("--weights", "0,1"), ("invalid-setting", "weights", "0")),
        (
            "classify",
            ("--weights", "2,1", "--class-weights", "balanced"),
            ("options-exclude-each-other", "weights", "class"),
        ),
        ("classify", ("--device", "abacus"), ("unavailable-device", "'abacus'")),
        ("regress", (), ("unusable-row", "'pos'")),
    ],
)
def test_what_cannot_be_is_told_before_training(
    encoder: Path, table: Path, tmp_path: Path, task: str, settings: Sequence[str], refused: tuple[str, ...]
) -> None:
    with refusal(*refused):
        finetune(task, *settings, model=encoder, data=table, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("batch", "8"),
        ("micro-tokens", "64"),
        ("seed", "3"),
        ("length", "6"),
        ("dropout", "0.5"),
        ("epochs", "2"),
        ("recurrent", "1"),
    ],
)
def test_every_setting_reaches_the_run(table: Path, tmp_path: Path, setting: str, value: str) -> None:
    def plan(*settings: str) -> dict[str, object]:
        return read_plan("classify", parse_settings(settings, schema("classify")), model=tmp_path, data=table).table()

    changed = recipe.difference(plan(), plan(f"--{setting}", value))
    assert len(changed) == 1 and changed[0].endswith(f"-> {value}") and setting.replace("-", "_") in changed[0]


@pytest.mark.parametrize(
    ("step", "number", "end"),
    [
        (4, signal.SIGTERM, SystemExit),
        (4, signal.SIGINT, KeyboardInterrupt),
        (12, signal.SIGTERM, SystemExit),
        (18, signal.SIGTERM, SystemExit),
    ],
)
def test_a_signal_stops_after_a_checkpoint_and_loses_no_score(
    run: Path, encoder: Path, table: Path, settings: Sequence[str], tmp_path: Path, step: int, number: int, end: type
) -> None:
    """Step 12 ends the second epoch and step 18 the run: the development rows are scored before the stop."""
    shown = ProgressLine.step

    def interrupt(self: ProgressLine, progress: Progress, line: object) -> None:
        shown(self, progress, line)  # type: ignore[arg-type]
        if progress.step == step and line is None:  # once: a second Ctrl-C would end it at once
            signal.raise_signal(number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressLine, "step", interrupt)
        with pytest.raises(end) as stopped:
            finetune("classify", *settings, model=encoder, data=table, out=tmp_path / "run")
    assert end is KeyboardInterrupt or stopped.value.code == 143
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [f"step-{step}"]
    finetune("classify", *settings, model=encoder, data=table, out=tmp_path / "run")
    assert lines(tmp_path / "run") == lines(run)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "place",
    [
        "osbert.runs.finetune.training_loop.write_model",
        "osbert.runs.finetune.report.write_report",
        "osbert.training.run_folder.RunFolder.finish",
        "osbert.runs.finetune.finetune.tidy",
    ],
)
def test_a_run_that_fails_at_its_end_can_be_finished(
    encoder: Path, table: Path, settings: Sequence[str], tmp_path: Path, place: str
) -> None:
    out, short = tmp_path / "run", (*settings, "--epochs", "2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, lambda *arguments, **more: stop(True))
        with pytest.raises(Killed):
            finetune("classify", *short, model=encoder, data=table, out=out)
    finetune("classify", *short, model=encoder, data=table, out=out)
    assert (out / "report.html").is_file() and facts(out)["epoch"] in (1, 2)
    assert not list(out.glob("best-epoch-*"))
    load(out).predict(["good"])


def test_a_finished_run_keeps_no_checkpoints_and_needs_none(
    encoder: Path, table: Path, settings: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = (*settings, "--epochs", "1")
    finetune("classify", *short, model=encoder, data=table, out=tmp_path)
    assert not (tmp_path / "checkpoints").exists()
    capsys.readouterr()
    finetune("classify", *short, model=encoder, data=table, out=tmp_path)
    assert "best: epoch 1" in capsys.readouterr().out


@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EACCES])
def test_only_a_full_disk_is_called_that(
    encoder: Path, table: Path, settings: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(failure, "it cannot be")

    monkeypatch.setattr("osbert.runs.finetune.training_loop.write_tensors", fail)
    full = failure == errno.ENOSPC
    with refusal("not-written", tmp_path / "run") if full else pytest.raises(OSError, match="cannot"):
        finetune("classify", *settings, model=encoder, data=table, out=tmp_path / "run")


@pytest.mark.parametrize("from_scratch", [False, True])
def test_dropout_is_that_of_the_whole_model(encoder: Path, from_scratch: bool) -> None:
    backbone = read_model(encoder, FinetuneSettings(seed=0, dropout=0.3), from_scratch=from_scratch).backbone
    head = Classify(labels=("a", "b")).head(backbone)
    shares = [part.probability for model in (backbone, head) for part in model.modules() if isinstance(part, Dropout)]
    assert len(shares) == 3 and set(shares) == {0.3}
    assert [part.dropout for part in backbone.modules() if isinstance(part, Attention)] == [0.3]
    weights = load_file(encoder / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert torch.equal(backbone.embeddings.pieces.weight, weights) is not from_scratch


def test_a_new_pooler_follows_from_the_seed_and_is_told(encoder: Path, tmp_path: Path) -> None:
    shutil.copytree(encoder, tmp_path, dirs_exist_ok=True)
    tensors = load_file(encoder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "pooler" not in name}
    save_file({**kept, "strange.weight": torch.zeros(2)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    models = [read_model(tmp_path, FinetuneSettings(seed=seed)) for seed in (3, 3, 4)]
    first, again, other = (model.backbone.pooler.weight for model in models)
    assert torch.equal(first, again) and not torch.equal(first, other)
    said = " ".join(models[0].remarks)
    assert "pooler.dense.weight is newly initialised: the file has no pooler" in said
    assert "strange.weight (2,) is not used: unknown" in said
    engine = load(tmp_path)
    # An engine computes with no new pooler: a classifier and --pooling pooler are refused without a trained one.
    assert engine.remarks == tuple(remark for remark in models[0].remarks if not remark.startswith("pooler."))
    with refusal("unsupported-model"):
        engine.embed(["good"], pooling="pooler")
    assert engine.embed(["good"], pooling="mean").shape == (1, 16)


def test_a_regressor_opens_in_transformers_with_the_users_numbers(encoder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    rows = [f"the {word} film,{value}" for word, value in (("good", 300), ("bad", 100), ("poor", 150))] * 10
    (tmp_path / "all.csv").write_text("text,score\n" + "\n".join(rows) + "\n")
    out = tmp_path / "run"
    finetune("regress", "--epochs", "2", "--learning-rate", "1e-2", model=encoder, data=tmp_path / "all.csv", out=out)
    tokenizer, model = AutoTokenizer.from_pretrained(out), AutoModelForSequenceClassification.from_pretrained(out)
    for text, ours in zip(["the good film", "bad"], load(out).predict(["the good film", "bad"])):
        with torch.no_grad():
            found = model.eval()(**tokenizer(text, return_tensors="pt")).logits.item()
        assert found == pytest.approx(ours.value, abs=1e-3) and found > 50
