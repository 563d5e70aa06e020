"""Commands with inputs and outputs on an object store write the bytes that they write locally."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import osbert
from object_store import QUIET
from osbert.runs.contract import WorkProgress
from osbert.runs.rows import texts as row_texts
from refusals import refusal
from terminal import told
from tiny_runs import write_run

pytestmark = QUIET

TEXTS = ["the good film", "", "a bad play .", "actors", "a fine film"]
FEW: dict[str, Any] = {"shortest": 3, "length": 12, "device": "cpu"}


@pytest.fixture
def table(s3: Any, tmp_path: Path) -> Path:
    """Return a local table, which is also the object box/in.csv."""
    path = tmp_path / "in.csv"
    path.write_text("id,text\n" + "".join(f"{place},{text}\n" for place, text in enumerate(TEXTS)))
    s3.put_file(str(path), "box/in.csv")
    return path


@pytest.fixture
def texts(s3: Any, tmp_path: Path) -> Path:
    """Return a local folder with texts, which is also the folder box/data."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "texts.txt").write_text("the good film .\n\na bad play\n\nthe poor actors , the fine play .\n\n" * 8)
    s3.put_file(str(folder / "texts.txt"), "box/data/texts.txt")
    return folder


def nothing_left(cache: Path) -> bool:
    """Return whether no output is left in the cache."""
    return not any(path.is_file() for path in (cache / "outputs").rglob("*"))


def lost(*_: Any) -> None:
    """Fail as an upload whose connection is lost."""
    raise ConnectionError("reset by peer")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_scores(s3: Any, runs: dict[str, Path], table: Path, tmp_path: Path, form: str) -> None:
    local = osbert.score(runs["pretrained"], table, out=tmp_path / f"out.{form}", device="cpu")
    events: list[Any] = []
    out = f"s3://box/out.{form}"
    assert local == osbert.score(runs["pretrained"], "s3://box/in.csv", out=out, device="cpu", watch=events.append)
    assert s3.cat_file(f"box/out.{form}") == (tmp_path / f"out.{form}").read_bytes()
    assert any("s3://box/in.csv" in str(event) for event in events) and nothing_left(tmp_path / "cache")


def test_scores_that_were_stopped_go_on(
    s3: Any, runs: dict[str, Path], table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    osbert.score(runs["pretrained"], table, out=tmp_path / "out.csv", device="cpu")
    monkeypatch.setattr(row_texts, "WINDOW", 2)

    def stop(event: object) -> None:
        if isinstance(event, WorkProgress) and event.done:
            raise KeyboardInterrupt

    call: dict[str, Any] = {"out": "s3://box/out.csv", "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        osbert.score(runs["pretrained"], "s3://box/in.csv", watch=stop, **call)
    assert not s3.exists("box/out.csv")
    events: list[Any] = []
    osbert.score(runs["pretrained"], "s3://box/in.csv", watch=events.append, **call)
    assert [event.done for event in events if isinstance(event, WorkProgress)] == [2, 4, 5]
    assert s3.cat_file("box/out.csv") == (tmp_path / "out.csv").read_bytes()


def test_scores_on_the_command_line(
    s3: Any, runs: dict[str, Path], table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = told(capsys, "score", runs["pretrained"], "--file", "s3://box/in.csv")
    assert len(done.output.splitlines()) == len(TEXTS)
    done = told(capsys, "score", runs["pretrained"], "--file", "s3://box/in.csv", "--out", "s3://box/in.csv")
    assert "s3://box/in.csv would replace" in done.error


@pytest.mark.lab
def test_texts_that_are_written(s3: Any, table: Path, tmp_path: Path) -> None:
    writer = write_run(tmp_path / "writer", None, masks=True, direction="left_to_right")
    local = osbert.generate(writer, table, out=tmp_path / "out.csv", most=4)
    assert local == osbert.generate(writer, "s3://box/in.csv", out="s3://box/out.csv", most=4)
    assert s3.cat_file("box/out.csv") == (tmp_path / "out.csv").read_bytes()
    assert nothing_left(tmp_path / "cache")
    with refusal("unknown-output-format", "s3://box/out.xyz"):
        osbert.generate(writer, "s3://box/in.csv", out="s3://box/out.xyz")


@pytest.mark.lab
def test_predictions_in_tasks(s3: Any, runs: dict[str, Path], table: Path, tmp_path: Path) -> None:
    pytest.importorskip("datatrove", reason="the extra 'scale' is not installed")
    osbert.predict(runs["classifier"], table, out=tmp_path / "out.csv")
    tasks: dict[str, Any] = {"executor": "local", "tasks": 2, "workers": 2}
    counts = osbert.predict(runs["classifier"], "s3://box/in.csv", out="s3://box/out.csv", **tasks)
    assert counts.rows == len(TEXTS)
    assert s3.cat_file("box/out.csv") == (tmp_path / "out.csv").read_bytes()
    assert nothing_left(tmp_path / "cache")


@pytest.mark.lab
@pytest.mark.parametrize("given", ["s3://box/data", "s3://box/data/texts.txt"])
def test_an_analysis(s3: Any, runs: dict[str, Path], texts: Path, tmp_path: Path, given: str) -> None:
    local = osbert.analyse(runs["encoder"], data=texts, out=tmp_path / "out", **FEW)
    found = osbert.analyse(runs["encoder"], data=given, out="s3://box/out", **FEW)
    assert (found.figures, found.notes) == (local.figures, local.notes)
    assert found.lines()[-1] == "-> s3://box/out/report.html"
    for name in ("analysis.json", "report.html"):
        assert s3.cat_file(f"box/out/{name}") == (tmp_path / "out" / name).read_bytes()
    assert sorted(s3.find("box/out")) == ["box/out/analysis.json", "box/out/report.html"]
    assert nothing_left(tmp_path / "cache")


@pytest.mark.lab
def test_an_analysis_that_lies_there(s3: Any, runs: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    from osbert_lab.analysis.opened_model import AnalysisProgress

    def computed(**more: Any) -> int:
        """Analyse; return the number of events that tell of work."""
        events: list[Any] = []
        osbert.analyse(
            runs["encoder"], data="s3://box/data", out="s3://box/out", watch=events.append, **{**FEW, **more}
        )
        if not (work := sum(isinstance(event, AnalysisProgress) for event in events)):
            assert any("s3://box/out/analysis.json already contains" in str(event) for event in events)
        return work

    assert computed() and not computed()
    with refusal("output-holds-something-else", "s3://box/out", "seed"):
        computed(seed=1)
    s3.pipe_file("box/out/thesis.tex", b"mine")
    with refusal("output-holds-something-else", "s3://box/out", "thesis.tex"):
        computed()
    with refusal("output-is-input", "s3://box/data"):
        osbert.analyse(runs["encoder"], data="s3://box/data/texts.txt", out="s3://box/data", **FEW)
    with refusal("wrong-format", "s3://box/in.bin"):
        s3.pipe_file("box/in.bin", b"\0")
        osbert.analyse(runs["encoder"], data="s3://box/in.bin", out="s3://box/other", **FEW)


@pytest.mark.lab
def test_an_analysis_that_was_stopped_goes_on(
    s3: Any, runs: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from osbert_lab.analysis import opened_model as opened

    osbert.analyse(runs["encoder"], data=texts, out=tmp_path / "out", **FEW)
    write, written = opened.write_sealed, []

    def stop(path: Path, value: Any) -> None:
        write(path, value)
        written.append(path.name)
        if len(written) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(opened, "write_sealed", stop)
    call: dict[str, Any] = {"data": "s3://box/data", "out": "s3://box/out", **FEW}
    with pytest.raises(KeyboardInterrupt):
        osbert.analyse(runs["encoder"], **call)
    assert not s3.exists("box/out") and not nothing_left(tmp_path / "cache")
    osbert.analyse(runs["encoder"], **call)
    assert len(written) == len({*written}) == 3, "none is computed again"
    assert s3.cat_file("box/out/analysis.json") == (tmp_path / "out" / "analysis.json").read_bytes()
    assert nothing_left(tmp_path / "cache")


@pytest.mark.lab
def test_an_analysis_whose_upload_failed_is_uploaded_by_the_same_command(
    s3: Any, runs: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from osbert_lab.analysis.opened_model import AnalysisProgress

    call: dict[str, Any] = {"data": "s3://box/data", "out": "s3://box/out", **FEW}
    with monkeypatch.context() as patched, refusal("not-uploaded", str(tmp_path / "cache")):
        patched.setattr(s3, "put_file", lost)
        osbert.analyse(runs["encoder"], **call)
    events: list[Any] = []
    osbert.analyse(runs["encoder"], watch=events.append, **call)
    assert not any(isinstance(event, AnalysisProgress) for event in events)
    assert sorted(s3.find("box/out")) == ["box/out/analysis.json", "box/out/report.html"]
    assert nothing_left(tmp_path / "cache")


def test_a_mixture_whose_upload_failed_begins_anew(
    s3: Any, runs: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = [tmp_path / "one", tmp_path / "two"]
    for corpus in corpora:
        osbert.build_corpus(texts, tokenizer=runs["encoder"], out=corpus)

    with monkeypatch.context() as patched, refusal("not-uploaded", "starts again"):
        patched.setattr(s3, "put_file", lost)
        osbert.mix_corpora(corpora, out="s3://box/mixed")
    assert nothing_left(tmp_path / "cache")


@pytest.mark.lab
def test_a_comparison_of_encoders(s3: Any, runs: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    models = [runs["encoder"], runs["pretrained"]]
    local = osbert.compare_encoders(models, data=texts, out=tmp_path / "out", **FEW)
    found = osbert.compare_encoders(models, data="s3://box/data", out="s3://box/out", **FEW)
    assert found.figures == local.figures
    for name in ("analysis.json", "report.html"):
        assert s3.cat_file(f"box/out/{name}") == (tmp_path / "out" / name).read_bytes()
    assert nothing_left(tmp_path / "cache")


def test_a_page_of_attention_is_local(runs: dict[str, Path]) -> None:
    with refusal("unknown-scheme", "s3://box/page.html"):
        osbert.load(runs["encoder"]).attention("a film").save("s3://box/page.html")
