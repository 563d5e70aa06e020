"""Every error that the user can mend has a code, and docs/errors.md lists the codes that there are."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from osbert.errors import Problems, UserError

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {"refused", "unknown-setting", "not-permitted", "unknown-model"}
"""Codes that stand at no call: of components that give none, of a subclass, of what a hub answers."""


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield every call in src that makes a UserError or notes a problem, with its place."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.search(r"^UserError$|problems\.add$", ast.unparse(node.func)):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def codes(node: ast.Call) -> set[str]:
    """Return the codes that a call names as they stand."""
    given = next((word.value for word in node.keywords if word.arg == "code"), None)
    return {part.value for part in ast.walk(given) if isinstance(part, ast.Constant)} if given else set()


def test_every_error_has_a_code() -> None:
    assert not [place for place, node in calls() if all(word.arg != "code" for word in node.keywords)]


def test_the_page_lists_the_codes_of_the_source() -> None:
    listed = re.findall(
        r"^\| `([a-z0-9-]+)` \|", (ROOT / "docs" / "errors.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert listed == sorted(set(listed))
    assert set(listed) == {code for _, node in calls() for code in codes(node)} | ELSEWHERE


def test_no_test_matches_the_wording_of_an_error() -> None:
    """They assert on the code and on what the user gave (refusals.py); on the status and the field of a Refusal."""
    kinds = {"UserError", "Refusal"}
    for path in (ROOT / "src").rglob("*.py"):
        kinds |= set(re.findall(r"^class (\w+)\(UserError\)", path.read_text(encoding="utf-8"), re.MULTILINE))
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and any(word.arg == "match" for word in node.keywords) and node.args
        if kinds & set(re.findall(r"\w+", ast.unparse(node.args[0])))
    ]
    assert "UnknownSetting" in kinds and not found


def test_an_error_of_several_problems_names_the_kind_of_each() -> None:
    problems = Problems(heading="a.csv cannot be used", limit=1)
    problems.add("line 2: the text is empty", code="empty-text")
    problems.add("line 3: unknown label 'x'", code="unknown-label")
    with pytest.raises(UserError) as raised:
        problems.stop_if_any()
    assert raised.value.code == "empty-text"
    assert raised.value.codes == ("empty-text", "unknown-label")


def test_an_error_keeps_its_code_on_the_way_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(UserError("a.csv: no such file", code="missing-file", codes=("no-data",))))
    assert (str(error), error.code, error.codes) == ("a.csv: no such file", "missing-file", ("missing-file", "no-data"))
