"""Outputs of commands: never an input, never a folder of others' files; what was damaged while it was unfinished."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import terminal
from osbert.commands.embed import VectorOptions, embed
from osbert.commands.finetune import finetune
from osbert.console import file_consoles
from osbert.lock import claim
from osbert.runs.contract import WorkProgress
from osbert.runs.rows import embed as embed_run
from refusals import refusal


@dataclass(frozen=True, kw_only=True)
class PartProgress:
    """Event: `done` of `count` items of a part are finished."""

    done: int
    count: int
    what: str


class Killed(Exception):
    """Stands for a kill: nothing is written after it."""


def killed(*arguments: object, **more: object) -> None:
    raise Killed


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 4
    path.write_bytes(content)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path, run: Path, encoder: Path, table: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder, the current one, with a table, links to it and to models, and a folder of somebody's files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_bytes(table.read_bytes())
    (tmp_path / "in.jsonl").write_text('{"text": "a good film"}\n')
    os.link(tmp_path / "in.csv", tmp_path / "hard.csv")
    for name, target in (("soft.csv", "in.csv"), ("soft.jsonl", "in.jsonl"), ("run", run), ("encoder", encoder)):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("a good film\n")
    return tmp_path


FOLDERS = (
    "pretrain cpu --corpus absent --steps 1",
    "finetune classify --model encoder --data in.csv",
    "finetune glue --model encoder --data thesis",
    "tokenizer train in.jsonl --vocabulary 30",
    "tokenizer extend encoder in.jsonl",
    "corpus build in.jsonl --tokenizer encoder",
    "reproduce table1 --model encoder --data thesis",
    "demo",
    "export run --to onnx --unchecked",
)
LAB = ("reproduce", "demo", "submit", "finetune glue", "convert encoder thesis --to google")
"""Commands that osbert_lab adds."""


def skip_without_extra(words: str) -> None:
    """Skip a command whose verb, or a library that it needs, is not installed."""
    if words.startswith(LAB):
        pytest.importorskip("osbert_lab", reason="needs osbert_lab")
    if " onnx" in words:
        pytest.importorskip("onnx", reason="needs the extra onnx")


@pytest.mark.parametrize(
    "words",
    [
        *(f"predict run --file in.csv --out {name}" for name in ("in.csv", "hard.csv", "soft.csv", "thesis/../in.csv")),
        "predict run --file in.jsonl --out run/tokenizer.json",
        "predict run --file in.csv --out thesis",
        *(f"embed encoder in.jsonl --out {name}" for name in ("in.jsonl", "soft.jsonl")),
        *(f"{words} --out thesis" for words in FOLDERS if "absent" not in words),
        "convert encoder encoder --to huggingface",
        "convert encoder thesis --to google",
        "tokenizer train thesis/chapter.txt --vocabulary 30 --out thesis/chapter.txt",
        "corpus build thesis --tokenizer encoder --out thesis",
        "submit run --out thesis",
    ],
)
def test_inputs_and_others_files_are_never_written(place: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    skip_without_extra(words)
    before = files(place)
    assert terminal.run(*words.split()) == 1
    assert "Traceback" not in capsys.readouterr().err and files(place) == before


@pytest.mark.parametrize("words", [*FOLDERS[1:6], "demo", "convert encoder"])
def test_a_held_folder_is_refused_before_any_work(place: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    skip_without_extra(words)
    target = "out --to huggingface" if words.startswith("convert") else "--out out"
    with claim(Path("out")):
        assert terminal.run(*f"{words} {target}".split()) == 1
    error = capsys.readouterr().err
    assert f"{os.getpid()} " in error and "out" in error
    assert not (place / "out").exists() and not list(place.glob(".*"))


def test_a_log_in_the_run_folder_does_no_harm(place: Path, settings: Sequence[str]) -> None:
    (place / "out").mkdir()
    (place / "out" / "log.txt").write_text("redirected")
    (place / "out" / ".DS_Store").touch()
    finetune("classify", *settings, "--epochs", "1", model=place / "encoder", data=place / "in.csv", out=place / "out")
    assert (place / "out" / "log.txt").read_text() == "redirected" and (place / "out" / "config.json").is_file()


def test_a_link_stays_and_what_it_leads_to_is_replaced(place: Path) -> None:
    (place / "real.csv").write_text("before")
    (place / "real.csv").chmod(0o600)
    (place / "link.csv").symlink_to("real.csv")
    assert terminal.run("predict", "run", "--file", "in.csv", "--out", "link.csv") == 0
    assert (place / "link.csv").is_symlink() and (place / "real.csv").stat().st_mode & 0o777 == 0o600
    assert terminal.run("predict", "run", "--file", "in.csv", "--out", "plain.csv") == 0
    assert (place / "real.csv").read_bytes() == (place / "plain.csv").read_bytes()
    assert not list(place.glob(".*"))


def test_the_form_is_that_of_the_name_given_and_not_of_what_a_link_leads_to(place: Path) -> None:
    (place / "data").mkdir()
    commands = {
        "predict run --file in.csv --out": ("csv", "tsv", "jsonl"),
        "embed encoder in.csv --out": ("jsonl", "npz", "npy", "parquet"),
    }
    for words, suffixes in commands.items():
        for suffix in suffixes:
            if suffix == "parquet":
                pytest.importorskip("pyarrow", reason="needs the extra parquet")
            for target in ("out", "out.npy", "out.bin"):
                (place / f"link.{suffix}").symlink_to(f"data/{target}")
                before = {*files(place), f"data/{target}", *(["link.rows.npz"] if suffix == "npy" else [])}
                assert terminal.run(*words.split(), f"link.{suffix}") == 0
                assert {*files(place)} == {*before, f"link.{suffix}"} and (place / f"link.{suffix}").is_symlink()
                assert terminal.run(*words.split(), f"plain.{suffix}") == 0
                assert (place / "data" / target).read_bytes() == (place / f"plain.{suffix}").read_bytes()
                (place / "data" / target).unlink()
                for made in (*place.glob("link.*"), *place.glob("plain.*")):
                    made.unlink()


@pytest.mark.parametrize("companion", ["link.rows.npz", "data/vec.rows.npz"])
def test_the_file_beside_an_npy_is_claimed_and_is_no_input_and_no_other_arrays(place: Path, companion: str) -> None:
    (place / "data").mkdir()
    (place / "link.npy").symlink_to("data/vec.npy" if "data" in companion else "data/vec.bin")
    (place / companion).write_bytes(b"{}\n")
    before, words = files(place), ["embed", "encoder", "in.jsonl", "--out", "link.npy"]
    if "data" in companion:  # it describes data/vec.npy
        assert terminal.run(*words) == 1
    else:
        assert terminal.run("embed", "encoder", companion, "--out", "link.npy") == 1
        with claim(place / companion):
            assert terminal.run(*words) == 1
    assert files(place) == before
    # Where the name that is given leads to that of the other one, both stay a pair.
    (place / "link.rows.npz").unlink(missing_ok=True)
    (place / "link.rows.npz").symlink_to("data/vec.rows.npz")
    assert terminal.run(*words) == 0 and {*files(place)} >= {"data/vec.rows.npz", "link.rows.npz"}


def test_unfinished_vectors_go_on_in_their_own_form(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "one.jsonl").symlink_to("vectors")
    (place / "other.npz").symlink_to("vectors")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(embed_run, "replace_file", killed)
        embed(place / "encoder", place / "in.csv", out=place / "one.jsonl")
    with refusal("begun-with-other-settings", ".jsonl", ".npz"):
        embed(place / "encoder", place / "in.csv", out=place / "other.npz", vectors=VectorOptions(pooling="tokens"))
    embed(place / "encoder", place / "in.csv", out=place / "one.jsonl")
    assert (place / "vectors").read_bytes().startswith(b'{"linex_index"')


def test_predictions_go_to_a_stream(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert terminal.run("predict", "run", "--file", "in.csv", "--out", "/dev/stdout") == 0
    assert capfd.readouterr().out.startswith("text,label,")
    assert terminal.run("predict", "run", "--file", "in.csv", "--out", os.devnull) == 0
    assert Path(os.devnull).is_char_device()


def test_a_folder_of_others_that_is_called_as_unfinished_work_stays(place: Path) -> None:
    (place / "v.npz.unfinished").mkdir()
    (place / "v.npz.unfinished" / "notes.txt").write_text("somebody's")
    with refusal("output-holds-something-else", "notes.txt"):
        embed(place / "encoder", place / "in.jsonl", out=place / "v.npz")
    assert (place / "v.npz.unfinished" / "notes.txt").read_text() == "somebody's"


@pytest.mark.parametrize("name", ["vectors.bin", "lines.bin", "text.bin", "progress.json", "run.json"])
def test_a_flip_in_an_unfinished_embedding_is_found(place: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(embed_run, "write_vectors", killed)
    with pytest.raises(Killed):
        embed(place / "encoder", place / "in.csv", out=place / "v.npz")
    monkeypatch.undo()
    flip(place / "v.npz.unfinished" / name)
    with refusal("damaged-file", name, "v.npz.unfinished"):
        embed(place / "encoder", place / "in.csv", out=place / "v.npz")
    assert not (place / "v.npz").exists()


def test_a_flip_in_the_best_epochs_weights_is_found(
    encoder: Path, table: Path, settings: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again() -> None:
        finetune("classify", *settings, model=encoder, data=table, out=tmp_path / "r")

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("osbert.runs.finetune.training_loop.write_model", killed)
        again()
    [path] = (tmp_path / "r").glob("best-epoch-*.safetensors")
    flip(path)
    with refusal("damaged-file", path.name):
        again()
    assert not (tmp_path / "r" / "model.safetensors").exists()


def test_without_a_terminal_progress_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(file_consoles, "LINE_SECONDS", 0)
    with file_consoles.showing_progress("rows") as watch:
        for done in (1, 2, 4):
            watch(WorkProgress(of="explanation", done=done, count=4))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("2 of 4 rows, ")


def test_each_part_has_its_own_rate_and_what_comes_before_it_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter((0, 100, 102, 500, 510, 513))  # a hundred seconds of loading, and four hundred between the parts
    monkeypatch.setattr(file_consoles, "LINE_SECONDS", 0)
    monkeypatch.setattr(file_consoles.time, "monotonic", lambda: next(clock))
    with file_consoles.showing_progress("rows") as watch:
        for what, done in (("tokens", 0), ("tokens", 1), ("items", 0), ("items", 2), ("tokens", 2)):
            watch(PartProgress(done=done, count=4, what=what))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["1 of 4 tokens", "2 of 4 items", "2 of 4 tokens"]
    assert [line.split(",")[1] for line in lines] == [" 6 s left", " 10 s left", " 5 s left"]
