"""A fine-tuned run teaches a smaller encoder: every kind, unlabelled rows, another vocabulary, a kill, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import osbert
from osbert import recipe
from osbert.interop.files.weight_files import fingerprint, read_file
from osbert.runs.contract import Notice
from osbert.tasks import Task
from osbert.tasks.kinds.rerank import Rerank
from osbert.tasks.kinds.tag import Tag
from osbert.training.progress import Progress
from osbert_lab.distillation.distillation import DistilRun
from osbert_lab.distillation.teacher import OUTPUTS
from questions import answers, squad
from refusals import refusal
from terminal import told
from tiny_runs import TASKS, WORDS, write_run

QUICK: dict[str, Any] = {
    "epochs": 1,
    "batch": 8,
    "learning_rate": 3e-3,
    "precision": "fp32",
    "device": "cpu",
    "log_every": 1,
    "dropout": 0.0,
}
TEXTS = [f"{article} {word} {thing}" for article in ("a", "the") for word in WORDS[:4] for thing in ("film", "play")]
TAGGED = [{"text": text, "entities": [{"start": 0, "end": 1, "label": "PER"}]} for text in TEXTS]
DATA: dict[str, Any] = {
    "classifier": [(text, "pos" if "oo" in text else "neg") for text in TEXTS],
    "windows": [(f"{text} {text} {text} {text} {text} {text} {text} {text}", "pos") for text in TEXTS[:8]]
    + [(text, "neg") for text in TEXTS],
    "labeller": [{"text": text, "labels": ["art"] if "oo" in text else ["war", "art"]} for text in TEXTS],
    "number": [(text, f"{len(text)}") for text in TEXTS],
    "tagger": TAGGED,
}


class Killed(Exception):
    """Stands for a kill: nothing is written after it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("distil")


@pytest.fixture(scope="module")
def teacher(folder: Path) -> Path:
    """Return a classifier of three layers."""
    return write_run(folder / "teacher", TASKS["classifier"], layers=3, deviation=0.3)


def taught(teacher: Path, out: Path, **more: Any) -> tuple[DistilRun, list[dict[str, float]]]:
    """Return a run, and the losses of its steps."""
    call: dict[str, Any] = {"data": DATA["classifier"], **QUICK, **more}
    run = osbert.distil(teacher, out=out, **call)
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return run, [line for line in lines if "loss" in line]


def weights(run: Path) -> str:
    return fingerprint(read_file(run / "model.safetensors"))


@pytest.mark.parametrize("kind", ["windows", "labeller", "number", "tagger", "reader"])
def test_every_kind_is_taught(folder: Path, kind: str) -> None:
    """The student comes nearer to a teacher whose weights are random, and is an ordinary run."""
    big = write_run(folder / f"big-{kind}", TASKS[kind], layers=2, deviation=0.3)
    data: Any = DATA.get(kind)
    if kind == "reader":
        data = folder / "questions.json"
        data.write_text(json.dumps(squad(*[answers(("good play", 21)), answers(("bad film", 34))] * 6)))
        (folder / "dev.json").write_text(data.read_text())
    more = {"dev": folder / "dev.json"} if kind == "reader" else {}
    run, steps = taught(big, folder / f"small-{kind}", data=data, epochs=4, soft=1.0, states=1, **more)
    assert sum(step["soft.loss"] for step in steps[-3:]) < 2 * steps[0]["soft.loss"]
    assert steps[-1]["states.loss"] < steps[0]["states.loss"]
    model = osbert.load(run.folder)
    assert model.learner.backbone.architecture.layers == 1
    assert [*model.learner.heads] == [model.fine_tuned.name]
    assert model.fine_tuned.criterion in run.metrics.keys() & run.teacher.keys()
    assert not (run.folder / "checkpoints").exists()


def test_the_student_begins_as_layers_of_the_teacher(teacher: Path, folder: Path) -> None:
    """Embeddings and head are copied, and the labels' part of the loss is what the settings say."""
    run, steps = taught(teacher, folder / "begins", layers=2, learning_rate=1e-12, soft=0.75, states=2)
    before, after = (read_file(one / "model.safetensors") for one in (teacher, run.folder))
    for name in after:
        layer = name.replace(".layer.1.", ".layer.2.")
        np.testing.assert_allclose(after[name].numpy(), before[layer].numpy(), atol=1e-6)
    first = steps[0]
    told = 0.25 * first["classify.loss"] + 0.75 * first["soft.loss"] + 2 * first["states.loss"]
    assert first["loss"] == pytest.approx(told, rel=1e-5)
    table = recipe.read(run.folder / "recipe.toml")["distil"]
    assert (table["layers"], table["teacher"]) == (2, str(teacher))
    assert table["weights"] == osbert.load(teacher).source.fingerprint


def test_rows_without_labels_are_learnt_from(teacher: Path, folder: Path) -> None:
    """The labels that they may have are not looked at."""
    plain = folder / "texts.csv"
    plain.write_text("text,label\n" + "".join(f"{text},nonsense\n" for text in TEXTS * 2))
    events: list[Any] = []
    data = {"train": DATA["classifier"][:4], "dev": DATA["classifier"]}
    run, steps = taught(teacher, folder / "more", data=data, texts=plain, watch=events.append)
    assert len(steps) == (4 + 2 * len(TEXTS)) / 8 + 0.5
    assert 0 < sum("classify.loss" in step for step in steps) < len(steps)
    assert all("soft.loss" in step for step in steps)
    assert any(str(plain) in event.text for event in events if isinstance(event, Notice))
    with refusal("begun-with-other-settings", "rows"):
        taught(teacher, run.folder, data=data)


def test_a_student_as_large_as_its_teacher_has_to_be_ahead_of_it(teacher: Path, folder: Path) -> None:
    answers = [(text, answer.value) for text, answer in zip(TEXTS, osbert.load(teacher).predict(TEXTS), strict=True)]
    for name, student, warned in (("large", {"student": teacher}, True), ("small", {"layers": 1}, False)):
        events: list[Any] = []
        run, _ = taught(teacher, folder / name, data=answers, learning_rate=1e-12, watch=events.append, **student)
        assert run.metrics["accuracy"] <= run.teacher["accuracy"] == 1
        advice = [
            event for event in events if isinstance(event, Notice) and event.warning and str(teacher) in event.text
        ]
        assert bool(advice) == warned


def test_a_student_may_have_a_vocabulary_of_its_own(teacher: Path, folder: Path) -> None:
    """The outputs are then those for the text as the teacher reads it; states, and words one by one, are not taught."""
    other = write_run(folder / "other", None, words=["good", "bad", "film", "##s", "o", "##o", "x"], width=8)
    run, steps = taught(teacher, folder / "own-words", student=other)
    assert "states.loss" not in steps[0]
    assert osbert.load(run.folder).learner.backbone.architecture.width == 8
    with refusal("options-exclude-each-other", "--states"):
        taught(teacher, folder / "none", student=other, states=1.0)
    tagger = write_run(folder / "tagger", Tag(types=("PER",)), layers=2)
    with refusal("mismatched-tokenizer", tagger, other):
        taught(tagger, folder / "none", student=other, data=TAGGED)


def test_a_narrower_student_of_the_same_vocabulary_learns_states(teacher: Path, folder: Path) -> None:
    narrow = write_run(folder / "narrow", None, width=8, layers=2)
    run, steps = taught(teacher, folder / "narrower", student=narrow, epochs=4, states=1)
    assert steps[-1]["states.loss"] < steps[0]["states.loss"]
    assert not [name for name in read_file(run.folder / "model.safetensors") if "map" in name]


def test_a_killed_run_goes_on_to_the_same_weights(
    teacher: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osbert_lab.distillation.teacher.TOGETHER", 4)
    calm, _ = taught(teacher, folder / "calm", dropout=0.1, epochs=3, states=1)

    def watch(event: object) -> None:
        if isinstance(event, Progress) and event.step == 5:
            raise Killed

    out = tmp_path / "killed"
    with pytest.raises(Killed):
        taught(teacher, out, dropout=0.1, epochs=3, states=1, checkpoint_every=2, watch=watch)
    kept = (out / OUTPUTS).read_bytes()
    (out / OUTPUTS).write_bytes(kept[:50])  # as if the kill had come while they were written
    killed, _ = taught(teacher, out, dropout=0.1, epochs=3, states=1, checkpoint_every=2)
    assert weights(killed.folder) == weights(calm.folder)
    assert killed.facts["best"]["metrics"] == calm.facts["best"]["metrics"]

    other = write_run(tmp_path / "teacher", TASKS["classifier"], layers=3, feedforward=32)
    with refusal("begun-with-other-settings", "distil.weights"):
        taught(other, out, dropout=0.1, epochs=3, states=1)


@pytest.mark.parametrize(("code", "named", "wrong"), [
    ("invalid-value", ["3"], {"layers": 3}),
    ("options-exclude-each-other", ["--layers", "--student"], {"layers": 1, "student": "encoder"}),
    ("options-exclude-each-other", ["--tuning", "lora"], {"tuning": "lora"}),
    ("options-exclude-each-other", ["--few-shot", "linear"], {"few_shot": "linear"}),
    ("invalid-setting", ["soft"], {"soft": 1.5}),
    ("invalid-setting", ["soft", "states"], {"soft": 0, "states": 0}),
    ("invalid-setting", ["temperature"], {"temperature": 0}),
    ("unknown-setting", ["softness"], {"softness": 1}),
    ("unknown-label", ["maybe"], {"data": [*DATA["classifier"], ("a film", "maybe")]}),
    ("missing-file", ["nothing.txt"], {"texts": "nothing.txt"}),
    ("invalid-value", ["4", "3"], {"student": "deep"}),
])  # fmt: skip
def test_what_cannot_be_taught_is_refused(
    teacher: Path, folder: Path, tmp_path: Path, code: str, named: list[str], wrong: dict[str, Any]
) -> None:
    if wrong.get("student"):
        wrong = wrong | {"student": write_run(folder / wrong["student"], None, layers=4)}
    with refusal(code, *named):
        taught(teacher, tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("code", "task"), [
    ("not-a-model", None), ("unsupported-model", Rerank()),
    ("unsupported-model", Tag(types=("PER",), features="last")),
])  # fmt: skip
def test_what_cannot_teach_is_refused(tmp_path: Path, code: str, task: Task | None) -> None:
    big = write_run(tmp_path / "big", task, layers=2)
    with refusal(code, big):
        taught(big, tmp_path / "run")


def test_the_command_line_does_the_same(teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in DATA["classifier"]))
    words = [word for name, value in QUICK.items() for word in (f"--{name.replace('_', '-')}", value)]
    done = told(capsys, "distil", teacher, "--data", table, "--out", tmp_path / "run", "--layers", 1, *words, "--json")
    assert done.status == 0, done.error
    called, _ = taught(teacher, tmp_path / "called", data=table, layers=1)
    assert json.loads(done.output.splitlines()[-1])["teacher"] == called.teacher
    assert weights(tmp_path / "run") == weights(called.folder)
