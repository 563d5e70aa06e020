"""osbert analyse: what the data allows, the same file for the same seed, what is finished kept, bad data named."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import osbert
from osbert_lab.analysis.coreference_files import GAP
from osbert_lab.analysis.kinds.heads import Heads
from osbert_lab.analysis.kinds.relations import Relations
from osbert_lab.analysis.opened_model import AnalysisProgress
from refusals import refusal
from terminal import told

TEXTS = ["the good film .", "a bad play", "the poor actors , the fine play .", "a film " * 20]
SETTINGS = {"texts": 40, "shortest": 3, "length": 16, "device": "cpu"}


def tree(*heads: int) -> str:
    words = ["film", "the", "play", "a"]
    rows = [f"{n}\t{words[n - 1]}\t_\tX\t_\t_\t{head}\tobj\t_\t_\n" for n, head in enumerate(heads, 1)]
    return "".join(rows) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    (made / "texts.txt").write_text("\n\n".join(TEXTS * 8))
    (made / "en-train.conllu").write_text(tree(0, 1, 1, 3) * 12)
    (made / "en-dev.conllu").write_text(tree(3, 1, 0, 3) * 12)
    return made


def test_all_that_the_data_allows_is_measured_and_stands_in_both_files(
    runs: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    events = []
    found = osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "out", watch=events.append, **SETTINGS)
    assert list(found.counts) == ["heads", "similarity", "relations", "tags", "arcs", "structure", "geometry"]
    assert [name for name, count in found.counts.items() if not count] == [
        "tags",
        "arcs",
        "structure",
    ]  # of one kind alone
    written = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert {name: len(figures) for name, figures in written["analyses"].items()} == found.counts
    for figures in written["analyses"].values():
        for one in figures:
            assert {"value", "n", "interval", "baselines", "data", "seed"} <= one.keys()
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(heading in page for heading in ("What the heads look at", "alike", "syntax", "geometry"))
    assert page.count("<figure") == page.count('<p class="soft">') and "<script" not in page and "://" not in page
    progress = [one for one in events if isinstance(one, AnalysisProgress)]
    assert progress[-1].done == progress[-1].count and not (tmp_path / "out.unfinished").exists()
    assert {one.baselines.keys() >= {"offset", "random encoder"} for one in found.figures["relations"]} == {True}


def test_the_same_seed_gives_the_same_files_and_another_one_other_texts(
    runs: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    def files(name: str, seed: int) -> tuple[str, ...]:
        osbert.analyse(runs["encoder"], data=folder, out=tmp_path / name, seed=seed, **{**SETTINGS, "texts": 20})
        return tuple((tmp_path / name / file).read_text() for file in ("analysis.json", "report.html"))

    first = files("one", 0)
    torch.manual_seed(99)  # nothing is drawn from torch's own generator
    assert files("two", 0) == first != files("three", 1)


def test_analyses_are_chosen_by_name(runs: dict[str, Path], folder: Path, tmp_path: Path) -> None:
    found = osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "out", only="geometry, relations", **SETTINGS)
    assert list(found.figures) == ["relations", "geometry"]
    with refusal("unknown-component", "relation", "relations"):
        osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "other", only="relation", **SETTINGS)


def test_a_stopped_run_keeps_what_is_finished(
    runs: dict[str, Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "whole", **SETTINGS)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(Relations, "add", stop)
        with pytest.raises(KeyboardInterrupt):
            osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "out", **SETTINGS)
    assert sorted(path.name for path in (tmp_path / "out.unfinished").glob("*.figures.json")) == [
        "geometry.figures.json", "heads.figures.json", "similarity.figures.json",
    ]  # fmt: skip
    with refusal("begun-with-other-settings", "texts", "out.unfinished"):
        osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "out", **{**SETTINGS, "texts": 7})
    monkeypatch.setattr(Heads, "add", stop)  # it is not done again
    assert osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "out", **SETTINGS).figures == whole.figures
    assert (tmp_path / "out" / "analysis.json").read_text() == (tmp_path / "whole" / "analysis.json").read_text()
    events: list[object] = []
    again = osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "out", watch=events.append, **SETTINGS)
    assert again == replace(whole, folder=tmp_path / "out") and "Nothing was computed again" in str(events[-1])


def test_a_model_without_attention_has_a_geometry_alone(
    runs: dict[str, Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osbert.models.families.transformer.Transformer.attends", False)
    found = osbert.analyse(runs["encoder"], data=folder, out=tmp_path / "out", **SETTINGS)
    assert list(found.figures) == ["tags", "arcs", "structure", "geometry"]
    [without] = [note for note in found.notes if note.endswith("the model has no attention")]
    assert {*without.partition(":")[0].split(", ")} >= {"heads", "similarity", "relations"}


def test_trees_alone_and_one_file_of_them_are_enough(runs: dict[str, Path], folder: Path, tmp_path: Path) -> None:
    found = osbert.analyse(runs["encoder"], data=folder / "en-dev.conllu", out=tmp_path / "out", **SETTINGS)
    assert list(found.figures) == ["heads", "similarity", "relations", "tags", "arcs", "structure", "geometry"]
    assert found.figure("relation", relation="obj").n == 18 and found.figure("layer_entropy", layer=1).n == 12
    assert "the sentences of the trees" in found.notes[0]


def test_bad_trees_are_named_with_file_and_line_and_left_out_where_that_is_said(
    runs: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    odd = "1\t\u200b\t_\tX\t_\t_\t0\troot\t_\t_\n\n"  # the tokenizer drops it
    long = "".join(f"{n}\tfilm\t_\tX\t_\t_\t{n - 1}\tobj\t_\t_\n" for n in range(1, 31)) + "\n"
    path = folder / "en-dev.conllu"
    path.write_text(tree(2, 1) + odd + long + path.read_text())
    out = tmp_path / "out"
    with refusal("unusable-row", "en-dev.conllu, line 1", "line 4", "line 6", 30) as raised:
        osbert.analyse(runs["encoder"], data=folder, out=out, **SETTINGS)
    assert "text-too-long" in raised.value.codes
    found = osbert.analyse(runs["encoder"], data=folder, out=out, errors="replace", **SETTINGS)
    assert any("24 trees of 27 read" in note for note in found.notes)
    assert found.figure("relation", relation="obj").n == 36 and sum("left out:" in note for note in found.notes) == 3


def test_files_about_the_data_are_not_read_as_texts_and_named(
    runs: dict[str, Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    treebank = tmp_path / "treebank"
    treebank.mkdir()
    (folder / "en-dev.conllu").rename(treebank / "en-dev.conllu")
    for name in ("LICENSE.txt", "README_en.txt", "stats.xml", "eval.log"):
        (treebank / name).write_text("<treebank>the good film . a bad play</treebank>\n\n" * 30)
    monkeypatch.chdir(treebank)
    found = osbert.analyse(runs["encoder"], data=".", out=tmp_path / "out", **SETTINGS)
    assert "the sentences of the trees" in found.notes[0]
    [unread] = [note for note in found.notes if note.startswith("not read")]
    assert all(name in unread for name in ("LICENSE.txt", "README_en.txt", "stats.xml", "eval.log"))
    alone = osbert.analyse(runs["encoder"], data="LICENSE.txt", out=tmp_path / "alone", **SETTINGS)  # said by name
    assert alone.figure("previous", layer=1, head=1).n == 30
    monkeypatch.chdir(runs["encoder"])
    osbert.analyse(".", data=treebank, out=tmp_path / "here", **SETTINGS)
    assert json.loads((tmp_path / "here" / "analysis.json").read_text())["model"] == runs["encoder"].name


def test_what_cannot_be_is_refused_before_anything_is_written(
    runs: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with refusal("missing-file", "nothing"):
        osbert.analyse(runs["encoder"], data=tmp_path / "nothing", out=out)
    with refusal("wrong-format", "model.safetensors"):
        osbert.analyse(runs["encoder"], data=runs["encoder"] / "model.safetensors", out=out)
    with refusal("invalid-value", "--length", 7, 8, "--seed", -1):
        osbert.analyse(runs["encoder"], data=folder, out=out, length=7, seed=-1)
    (folder / "short.txt").write_text("a film")
    with refusal("no-data", 16):
        osbert.analyse(runs["encoder"], data=folder / "short.txt", out=out, shortest=16, length=16)
    assert not out.exists() and not (tmp_path / "out.unfinished").exists()
    out.mkdir()
    (out / "thesis.txt").touch()
    with refusal("output-holds-something-else", "thesis.txt"):
        osbert.analyse(runs["encoder"], data=folder, out=out, **SETTINGS)


def test_an_analysis_of_another_model_or_of_other_settings_is_not_replaced(
    runs: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    settings = {**SETTINGS, "texts": 5}
    first = osbert.analyse(runs["encoder"], data=folder / "texts.txt", out=out, **settings)
    with refusal("output-holds-something-else", out, "texts"):
        osbert.analyse(runs["encoder"], data=folder / "texts.txt", out=out, **SETTINGS)
    with refusal("output-holds-something-else", out, "model"):
        osbert.analyse(runs["classifier"], data=folder / "texts.txt", out=out, **settings)
    assert osbert.analyse(runs["encoder"], data=folder / "texts.txt", out=out, **settings).figures == first.figures


def test_what_makes_figures_doubtful_is_noted(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_text("\n\n".join(["the zzz yyy qqq", "a film", "a play"] * 4))
    found = osbert.analyse(runs["encoder"], data=tmp_path / "odd.txt", out=tmp_path / "out", **SETTINGS)
    assert any("38%" in note for note in found.notes) and any("9 repeated texts" in note for note in found.notes)
    assert any(note.startswith("geometry:") and "20 texts" in note for note in found.notes)
    (tmp_path / "same.conllu").write_text(tree(0, 1, 1, 3) * 200)  # words of one tag alone
    found = osbert.analyse(runs["encoder"], data=tmp_path / "same.conllu", out=tmp_path / "tags", **SETTINGS)
    assert any(note.startswith("tags:") and "two labels" in note for note in found.notes)


def test_few_texts_are_reported_without_what_they_are_too_few_for(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "few.txt").write_text("the good film\n\na bad play")
    words = ("--shortest", 3, "--length", 16, "--json")
    done: SimpleNamespace = told(
        capsys, "analyse", runs["encoder"], "--data", tmp_path / "few.txt", "--out", tmp_path / "out", *words
    )
    result = json.loads(done.output.splitlines()[-1])
    assert result["event"] == "result" and result["counts"]["heads"] and not result["counts"]["geometry"]
    assert "too little data" in (tmp_path / "out" / "report.html").read_text()


def test_labelled_rows_alone_are_enough_for_a_fine_tuned_run(
    runs: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "dev.csv"
    rows.write_text("text,label\n" + "the film,pos\na bad play,neg\n" * 20)
    found = osbert.analyse(runs["classifier"], data=rows, out=tmp_path / "out", **SETTINGS)
    assert found.counts == {"task_importance": found.counts["task_importance"]} and found.counts["task_importance"]
    with refusal("wrong-format", rows):
        osbert.analyse(runs["encoder"], data=rows, out=tmp_path / "other", **SETTINGS)
    (tmp_path / "labels.csv").write_text(rows.read_text() + "the film,mystery\n")
    with refusal("unknown-label", "mystery", 42):
        osbert.analyse(runs["classifier"], data=tmp_path / "labels.csv", out=tmp_path / "other", **SETTINGS)


def test_what_breaks_off_far_down_is_named_and_what_is_left_out_is_counted(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    def refused(name: str, text: str | bytes, code: str, *values: object) -> None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        with refusal(code, name, *values):
            osbert.analyse(runs["pretrained"], data=tmp_path / name, out=tmp_path / "out", **SETTINGS)

    begin = "#begin document (a)\n"
    word = "a\t0\t0\tfilm\t_\t-\n"
    row = "\t".join(["the film", "the", "0", "film", "4", "TRUE", "the", "0", "FALSE"])
    table = "\t".join(GAP) + "\n"
    refused("books.conll", (begin + word * 2000).encode() + b"\xe9\n", "wrong-encoding", 2002)
    refused("books.conll", begin + word * 3 + "a film\n", "unusable-row", 5)
    refused("gap.tsv", table + row.replace("4", "four"), "unusable-row", "line 2", "four")
    refused("gap.tsv", table + "the film\tthe\n", "unusable-row", "line 2", "Pronoun-offset")
    refused("c.txt", "the DT B-NP\n\n" * 100 + "a DT B-XX\n", "unusable-row", "line 201", "B-XX")
    refused("empty.conllu", "", "no-data")
    refused("one.txt", "", "no-data")
    pair = json.dumps({"sentence_good": "a film", "sentence_bad": "film a"}) + "\n"
    (tmp_path / "pairs.jsonl").write_text(pair * 3 + "{broken\n" * 12)
    found = osbert.analyse(
        runs["pretrained"], data=tmp_path / "pairs.jsonl", out=tmp_path / "pairs", errors="replace", **SETTINGS
    )
    assert "3 minimal pairs of 15 read" in found.notes[0] and any("2 more" in note for note in found.notes)


def test_a_single_text_has_no_figure_without_an_interval(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("the good film")
    with refusal("too-little-data", "one.txt", "heads", "similarity", "two texts"):
        osbert.analyse(runs["encoder"], data=tmp_path / "one.txt", out=tmp_path / "out", **SETTINGS)
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.unfinished").exists()


@pytest.mark.usefixtures("interruptible")
def test_a_signal_ends_the_command_with_what_is_kept(
    runs: dict[str, Path],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("analyse", runs["encoder"], "--data", folder, "--out", tmp_path / "out", "--json")
    settings = [word for name, value in SETTINGS.items() for word in (f"--{name}", value)]
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        with monkeypatch.context() as patched:
            patched.setattr(Relations, "add", lambda *_, number=number: os.kill(os.getpid(), number))
            done = told(capsys, *words, *settings)
        assert done.status == status
        [said] = [line for line in map(json.loads, done.output.splitlines()) if line.get("warning")]
        assert "3 of 7 analyses" in said["text"] and str(tmp_path / "out.unfinished") in said["text"]
        assert json.loads(done.error.splitlines()[-1])["code"] == "interrupted"
    assert told(capsys, *words, *settings).status == 0 and not (tmp_path / "out.unfinished").exists()
