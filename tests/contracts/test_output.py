"""--json and --quiet of every verb: it has both without a line of its own, and prints what docs/output.md says."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from osbert import cli
from osbert.console.output import OPTIONS
from osbert.console.verbs import verb_packages
from terminal import run
from tiny_runs import TASKS, write_run

ROOT = Path(__file__).resolve().parents[2]
VERBS = {name: package.module(name) for package in verb_packages() for name in package.names()}
WATCHES = {"watching", "print_notices", "print_events", "showing_progress", "_downloads"}
"""What makes a `watch` that obeys both; so do the classes that are an EventConsole."""


def function(name: tuple[str, ...]) -> Any:
    return getattr(importlib.import_module(VERBS[name]), name[-1])


@pytest.mark.parametrize("name", VERBS, ids=" ".join)
def test_a_verb_returns_its_result_and_leaves_both_options_alone(name: tuple[str, ...]) -> None:
    signature = inspect.signature(function(name))
    assert signature.return_annotation == "Result", "a verb returns its result, which --json prints"
    assert not {*signature.parameters} & {*OPTIONS}


def test_both_are_in_the_help_of_every_verb() -> None:
    for name in VERBS:
        app = cli.application([*name, "--help"])
        for word in name:
            app = app[word]
        shown = {option for argument in app.assemble_argument_collection() for option in argument.names}
        assert {f"--{option}" for option in OPTIONS} <= shown, name


def test_a_watch_of_a_verb_obeys_both() -> None:
    """Each was made by something that asks for the output of the moment."""
    for path in sorted((ROOT / "src").glob("*/commands/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            place = f"{path.name}:{getattr(node, 'lineno', 0)}"
            for made in bound(node):
                assert isinstance(made, ast.Call), place
                name = ast.unparse(made.func)
                assert name in WATCHES or name.endswith("Console"), place
            assert not (isinstance(node, ast.FunctionDef) and node.name == "watch"), place


def bound(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a node gives the name `watch` to, or passes by it unless it has that name."""
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "watch":
        yield node.value
    if isinstance(node, ast.withitem) and node.optional_vars and ast.unparse(node.optional_vars) == "watch":
        yield node.context_expr
    if isinstance(node, ast.keyword) and node.arg == "watch" and ast.unparse(node.value) != "watch":
        yield node.value


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a text, a table of labels, a classifier and an encoder."""
    folder = tmp_path_factory.mktemp("output")
    (folder / "text.txt").write_text("The cat sat. It ran.\n\nThe dog ran. It sat.\n\n" * 20, encoding="utf-8")
    (folder / "domain.txt").write_text("The cathen sat.\n" * 20, encoding="utf-8")
    (folder / "more.csv").write_text("text,label\n" + "a good film,pos\nbad play,neg\n" * 8, encoding="utf-8")
    write_run(folder / "run", TASKS["classifier"])
    write_run(folder / "encoder", None)
    return folder


OF_LAB = (
    ("prune run --heads 0.5 --data more.csv --out {out}/pruned", "whole"),
    ("duplicates {out}/vectors.npz --above 0.99", "repeat"),
    ("topics {out}/vectors.npz --out {out}/topics --topics 2", "report.html"),
)
CHEAP = (
    ("tokenizer train text.txt --out {out}/vocabulary --vocabulary 50", ""),
    ("tokenizer extend {out}/vocabulary domain.txt --out {out}/extended --pieces 2", ""),
    ("tokenizer encode {out}/vocabulary cat", "piece"),
    ("corpus build text.txt --tokenizer {out}/vocabulary --out {out}/corpus --workers 1", ""),
    ("corpus build text.txt --tokenizer {out}/vocabulary --out {out}/other --workers 1 --documents line", ""),
    ("corpus mix {out}/corpus {out}/other --weights 3,1 --out {out}/mixed", ""),
    ("corpus show {out}/corpus", "documents"),
    ("evaluate run --data more.csv --out {out}/scores.json", "accuracy"),
    ("predict run good", "pos"),
    ("predict run --file more.csv --out {out}/rows.csv", ""),
    ("predict run --file more.csv", "good film"),
    ("embed encoder more.csv --text text --out {out}/vectors.npz", ""),
    ("search {out}/vectors.npz good --top 1", "line"),
    *(OF_LAB if find_spec("osbert_lab") else ()),
    ("convert run {out}/converted --to huggingface", ""),
    ("finetune classify --model encoder --data more.csv --out {out}/tuned --epochs 1 --batch 8", ""),
)
"""Commands, and a word of what --quiet leaves of them."""


@pytest.mark.parametrize("options", [("--json",), ("--quiet",), ("--json", "--quiet")], ids=" ".join)
def test_real_runs(
    options: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    for command, word in CHEAP:
        out = "".join(options).strip("-")
        words = command.format(out=out).split()
        assert run(*words, *options) == 0, capsys.readouterr().err
        said = capsys.readouterr()
        if "--json" not in options:
            assert not said.err, command
            assert (word in said.out) if word else not said.out, command
            continue
        lines = [json.loads(line, parse_constant=pytest.fail) for line in said.out.splitlines()]
        errors = [json.loads(line) for line in said.err.splitlines()]
        if "--file" in words and "--out" not in words:
            assert [line["text"] for line in lines[:2]] == ["a good film", "bad play"] and "prediction" in lines[0]
        else:
            assert [line["event"] for line in lines].count("result") == 1 and lines[-1]["event"] == "result", command
            assert len(lines) == 1 or "--quiet" not in options, command
        assert not errors or "--quiet" not in options
        assert {line["event"] for line in errors} <= {"notice", "prediction-progress"}
        if words[0] == "evaluate":
            written = json.loads((place / out / "scores.json").read_text())
            assert {"event": "result", **written} == lines[-1] and written["rows"] == 16


def test_errors_are_objects_on_standard_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words, status, code in (
        (["corpus", "show", tmp_path / "nowhere"], 1, "not-a-model"),
        (["corpus", "shwo", "corpus"], 2, "usage"),
        (["finetune", "classify", "--model", tmp_path, "--data", "a.csv", "--out", "b", "--jsno", "1"], 1, ""),
    ):
        assert run(*words, "--json") == status
        said = capsys.readouterr()
        (error,) = map(json.loads, said.err.splitlines())
        assert not said.out and error["event"] == "error" and error["message"] and error["code"] in error["codes"]
        assert not code or error["code"] == code
        assert run(*words, "--quiet") == status
        assert capsys.readouterr().err


def test_what_stands_behind_two_hyphens_is_text(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("predict", place / "run", "--quiet", "--", "--json") == 0
    assert capsys.readouterr().out.startswith(("neg", "pos"))


def test_help_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("evaluate", "--help", "--json") == 0
    assert "--quiet" in capsys.readouterr().out
