"""osbert analyse compare: what is the same is 1, other tokenizers and sizes, a run over its steps, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import osbert
from osbert_lab.analysis.kinds.heads import Heads
from refusals import refusal
from terminal import told
from tiny_runs import WORDS, write_run

SETTINGS = {"texts": 40, "shortest": 3, "length": 16, "device": "cpu"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(["the good film .", "a bad play", "the poor actors , the fine play ."] * 10))
    return path


def test_a_model_is_like_itself_and_a_smaller_one_of_other_pieces_is_compared(
    runs: dict[str, Path], text: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs["encoder"], again := tmp_path / "again" / "encoder")
    other = write_run(tmp_path / "other", None, words=[*WORDS[:4], *"fpayl.", "##i", "##l", "##m"], width=8)
    out = tmp_path / "out"
    found = osbert.compare_encoders([runs["encoder"], again, other], data=text, out=out, **SETTINGS)
    assert {one.where["model"] for one in found.figures["geometry"]} == {
        f"{runs['encoder'].parent.name}/encoder", "again/encoder", "other",
    }  # fmt: skip
    for layer in (0, 1):
        same = found.figure("cka", model="again/encoder", layer=layer, other=layer)
        assert same.value == pytest.approx(1) and same.n == 30
        assert found.figure("word_cosine", model="again/encoder", layer=layer).value == pytest.approx(1)
        assert -1 < found.figure("cka", model="other", layer=layer, other=layer).value < 1
    with pytest.raises(KeyError):
        found.figure("word_cosine", model="other")  # of another width
    assert found.figure("previous", model="other", layer=1, head=2).n == 30
    page = (out / "report.html").read_text()
    assert page.count("<figure") == page.count('<p class="soft">') > 4 and "nan" not in page
    written = json.loads((out / "analysis.json").read_text())
    assert {name: len(own) for name, own in written["analyses"].items()} == found.counts


def test_a_run_is_compared_with_the_models_on_its_way(
    runs: dict[str, Path], text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["encoder"], run)
    for step in (20, 60, 100):  # the last is the end itself
        write_run(run / "models" / f"step-{step}", None, masks=True)
    words = ("--shortest", 3, "--length", 16, "--json")
    done = told(capsys, "analyse", "compare", run, "--data", text, "--out", tmp_path / "out", *words)
    assert json.loads(done.output.splitlines()[-1])["counts"]["likeness"] == 2 * (2 * 4 + 2)
    written = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert written["reference"] == "the end" and [*written["steps"]] == ["the end", "step 20", "step 60"]
    assert "by step" in (tmp_path / "out" / "report.html").read_text()


def test_a_stopped_comparison_keeps_the_models_that_are_done(
    runs: dict[str, Path], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs["encoder"], again := tmp_path / "again")
    models, count = [runs["encoder"], again], 0
    whole = osbert.compare_encoders(models, data=text, out=tmp_path / "whole", **SETTINGS)
    add = Heads.add

    def stop(self: Heads, text: object) -> None:
        nonlocal count
        count += 1
        if count > 30:
            raise KeyboardInterrupt
        add(self, text)  # type: ignore[arg-type]

    with monkeypatch.context() as context:
        context.setattr(Heads, "add", stop)
        with pytest.raises(KeyboardInterrupt):
            osbert.compare_encoders(models, data=text, out=tmp_path / "out", **SETTINGS)
    assert len([*(tmp_path / "out.unfinished").glob("*.figures.json")]) == 1
    found = osbert.compare_encoders(models, data=text, out=tmp_path / "out", **SETTINGS)
    assert found.figures == whole.figures and not (tmp_path / "out.unfinished").exists()


def test_what_cannot_be_compared_is_refused(runs: dict[str, Path], text: Path, tmp_path: Path) -> None:
    with refusal("too-little-data", "encoder", "--models-every"):
        osbert.compare_encoders([runs["encoder"]], data=text, out=tmp_path / "out")
    with refusal("missing-option"):
        osbert.compare_encoders([], data=text, out=tmp_path / "out")
    with refusal("invalid-value", "encoder"):
        osbert.compare_encoders([runs["encoder"]] * 2, data=text, out=tmp_path / "out")
    text.write_text("a film")
    both = [runs["encoder"], runs["classifier"]]
    with refusal("no-data", 9):
        osbert.compare_encoders(both, data=text, out=tmp_path / "out", **{**SETTINGS, "shortest": 9})
    assert not (tmp_path / "out").exists()
    found = osbert.compare_encoders(both, data=text, out=tmp_path / "out", **SETTINGS)
    assert not found.figures["likeness"] and any("20" in note for note in found.notes)
    with refusal("output-holds-something-else", "out", "seed"):
        osbert.compare_encoders(both, data=text, out=tmp_path / "out", seed=1, **SETTINGS)
