"""docs/survey.md holds: each row's files are there, its command and settings are taken, it says what was measured."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import cyclopts
import pytest

from osbert import cli
from osbert.errors import UserError
from osbert.options import parse_settings
from osbert_lab.papers.tables import read_table

ROOT = Path(__file__).resolve().parents[2]
STORY = read_table("generations")
BIGGER = {"bert-paper", "bert-small"}
"""The table runs the paper's recipe in a small size, where the page names a small recipe."""
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "survey.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "`" in line
]


def test_the_tables_have_rows() -> None:
    assert len(ROWS) > 60 and {len(row) for row in ROWS} == {4}
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the names of models be folders, which are not opened."""
    for name in ("model", "run", "mnli-run", "distilbert-base-uncased"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_holds(row: list[str]) -> None:
    _, where, command, measured = row
    paths = re.findall(r"`([^`]+)`", where)
    assert paths and not [
        path for path in paths if not any((ROOT / "src" / package / path).exists() for package in ("osbert", "."))
    ]
    results = re.findall(r"\]\(\.\./(benchmarks/results/\S+\.toml)\)", measured)
    assert measured == "not measured" or "](results.md#" in measured or results
    assert all((ROOT / path).is_file() for path in results)
    [line] = re.findall(r"^`osbert ([^`]+)`$", command)
    require_taken(shlex.split(line))


def require_taken(words: list[str]) -> None:
    """Raise where the command line, or the schema of what it names, has no such option."""
    verb, rest = cli.application(words), words
    while rest and not rest[0].startswith("-") and rest[0] in list(verb):
        verb, rest = verb[rest[0]], rest[1:]
    function, bound, unused, _ = verb.parse_known_args(rest)
    assert not unused
    if not (schemas := getattr(function, "settings_schemas", None)):
        return
    # Settings go past the verb to the schema that its first words name, as in the verbs themselves.
    [name] = [one.name for one in inspect.signature(function).parameters.values() if one.kind is one.VAR_POSITIONAL]
    settings = [*bound.arguments.get(name, ())]
    while settings and not settings[0].startswith("-"):
        settings = settings[1:]  # more tasks, or files
    parse_settings(settings, *schemas(rest))


def test_the_lines_of_the_story_by_year_are_taken(tmp_path: Path) -> None:
    for name in ("elmo", "gpt"):
        (tmp_path / name).mkdir()
    text = (ROOT / "docs" / "generations.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?:^|`)osbert ([^`\n]+)", text, re.MULTILINE)
    found = [shlex.split(line, comments=True) for line in lines if " --" in line]
    assert {words[1] for words in found if words[0] == "pretrain"} == {row.recipe for row in STORY.rows} ^ BIGGER
    for words in found:
        require_taken(words)


@pytest.mark.parametrize("line", ["pretrain cpu --corpus a --out b --no-such 1", "finetune rte --model model --data a"])
def test_what_is_no_command_is_refused(line: str) -> None:
    with pytest.raises((cyclopts.CycloptsError, UserError)):
        require_taken(shlex.split(line))
