"""metrics.jsonl and what the person who waits sees."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from osbert.console import training_consoles
from osbert.console.output import say
from osbert.console.training_consoles import ProgressLine
from osbert.data.step import Cursor
from osbert.training.progress import Mean, Progress
from osbert.training.tracking import Metrics, duration, read_lines, summary


def progress(step: int, *, steps: int = 10, skipped: bool = False) -> Progress:
    loss = math.nan if skipped else float(step)
    return Progress(
        step=step, steps=steps, losses={"mlm": loss, "nsp": 0.5}, accuracies={"mlm": step / 100}, learning_rate=0.1,
        gradient_norm=2.0 * step, skipped=skipped, cursor=Cursor(), tokens=100 * step, seconds=float(step),
        loader_seconds=step / 4, skipped_steps=int(skipped),
    )  # fmt: skip


def test_lines_are_means_since_the_line_before(tmp_path) -> None:
    metrics = Metrics(tmp_path, every=4, memory={})
    assert [metrics.step(progress(step)) is not None for step in range(1, 11)] == [
        n in (4, 8, 10) for n in range(1, 11)
    ]
    first, second, last = read_lines(tmp_path / "metrics.jsonl")
    assert first == {
        "step": 4, "loss": 3.0, "mlm.loss": 2.5, "mlm.accuracy": pytest.approx(0.025), "nsp.loss": 0.5,
        "gradient_norm": 5.0, "learning_rate": 0.1, "tokens": 400, "skipped_steps": 0, "seconds": 4.0,
        "tokens_per_second": 100.0, "loader_share": 0.25,
    }  # fmt: skip
    assert second["mlm.loss"] == 6.5
    assert (last["step"], last["mlm.loss"]) == (10, 9.5)


def test_skipped_steps_are_counted_but_not_averaged(tmp_path) -> None:
    metrics = Metrics(tmp_path, every=3, memory={})
    for step in (1, 2, 3):
        line = metrics.step(progress(step, skipped=step == 2))
    assert line["mlm.loss"] == 2.0
    text = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in text
    alone = Metrics(tmp_path, every=1, memory={}).step(progress(1, skipped=True))
    assert "loss" not in alone
    assert alone["skipped_steps"] == 1


@pytest.mark.parametrize("stop", range(10))
def test_a_resumed_run_writes_the_lines_of_an_undisturbed_one(tmp_path, stop) -> None:
    whole = Metrics(tmp_path, every=3, memory={})
    for step in range(1, 11):
        whole.step(progress(step))
    expected = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "cut").mkdir()
    memory: dict = {}
    first = Metrics(tmp_path / "cut", every=3, memory=memory)
    saved = json.dumps(memory)
    for step in range(1, 11):
        first.step(progress(step))
        if step == stop:
            saved = json.dumps(memory)
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "lo')
    second = Metrics(tmp_path / "cut", every=3, memory=json.loads(saved))
    second.go_back(stop)
    assert all(line["step"] <= stop for line in read_lines(second.path))
    for step in range(stop + 1, 11):
        second.step(progress(step))
    assert second.path.read_text() == expected


def test_held_out(tmp_path) -> None:
    metrics = Metrics(tmp_path, every=1, memory={})
    line = metrics.record_held_out(7, {"mlm": Mean(loss=2.0, accuracy=0.5), "cost": Mean(loss=1.0)})
    assert line == {
        "step": 7, "held_out.loss": 3.0, "held_out.mlm.loss": 2.0, "held_out.mlm.accuracy": 0.5,
        "held_out.cost.loss": 1.0,
    }  # fmt: skip
    assert read_lines(metrics.path) == [line]
    assert summary(line, prefix="held_out.") == "loss 3.000  mlm 2.000 (50.0%)  cost 1.000"


@pytest.mark.parametrize("rest", [b'{"step": 2', b"\0\0\0\0\n", b"\xff\n", b"3\n", b'{"step": 2}'])
def test_what_a_power_cut_left_is_ignored(tmp_path, rest) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + rest)
    assert read_lines(tmp_path / "metrics.jsonl") == [{"step": 1}]


def test_what_is_not_finite_is_null(tmp_path) -> None:
    metrics = Metrics(tmp_path, every=1, memory={})
    metrics.record_held_out(1, {"mlm": Mean(loss=math.inf)})
    assert read_lines(metrics.path)[0]["held_out.mlm.loss"] is None


def test_lines_refused_by_a_full_disk_are_written_later(tmp_path, monkeypatch) -> None:
    metrics = Metrics(tmp_path, every=1, memory={})
    metrics.step(progress(1))
    real = type(metrics.path).open

    def full(self, mode="r", **options):
        file = real(self, mode, **options)
        if mode == "a":
            file.write('{"half')
            file.close()
            raise OSError(28, "No space left on device")
        return file

    with monkeypatch.context() as patch:
        patch.setattr(type(metrics.path), "open", full)
        metrics.step(progress(2))
    assert [line["step"] for line in read_lines(metrics.path)] == [1]
    metrics.step(progress(3))
    assert [line["step"] for line in read_lines(metrics.path)] == [1, 2, 3]


def shown(*, terminal: bool) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=160)
    with ProgressLine(console, processor="cpu fp32", done=0, steps=10) as line:
        for step in range(1, 6):
            at = progress(step)
            values = {"loss": at.loss, "mlm.loss": 2.0, "mlm.accuracy": 0.25, "tokens_per_second": 1234.5}
            line.step(at, values if step == 5 else None)
        line.show_held_out({"step": 5, "held_out.loss": 1.0, "held_out.mlm.loss": 1.0})
        say(console, "[a note]")
    return stream.getvalue()


def test_plain_lines_where_there_is_no_terminal(monkeypatch) -> None:
    times = iter([0.0, 102.0, 110.0])  # the first step ends after a linear layer was fitted
    monkeypatch.setattr(training_consoles.time, "monotonic", lambda: next(times))
    assert shown(terminal=False).splitlines() == [
        "step 5/10  loss 5.500  mlm 2.000 (25.0%)  1,234 tokens/s  10 s left  cpu fp32",
        "step 5/10  held out: loss 1.000  mlm 1.000",
        "[a note]",
    ]


def test_a_bar_on_a_terminal() -> None:
    text = shown(terminal=True)
    assert "mlm 2.000 (25.0%)" in text
    assert "[a note]" in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (99, "99 s"), (125, "2 min"), (7500, "2 h 05 min"), (200_000, "2 d 7 h"), (5999, "100 min")],
)
def test_durations(seconds, words) -> None:
    assert duration(seconds) == words


def test_a_corrected_number_of_steps_is_shown() -> None:
    stream = io.StringIO()
    with ProgressLine(Console(file=stream, width=160), processor="cpu fp32", done=0, steps=10) as line:
        line.step(progress(5, steps=7), {"loss": 1.0})
        line.show_held_out({"step": 5, "held_out.loss": 1.0})
    assert [text.split()[1] for text in stream.getvalue().splitlines()] == ["5/7", "5/7"]
