"""The page's small modules, in the browser: CSV against Python's own, spans counted as Python counts, shares told."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

Call = Callable[..., Any]


@pytest.fixture
def call(open_page: Any) -> Call:
    """Give a function that calls one of a module's with plain values; an error comes back as its message."""
    page: Page = open_page("encoder")[0]

    def called(module: str, function: str, *values: Any) -> Any:
        code = """async ([path, name, values]) => {
            const module = await import(path);
            try {
                return module[name](...values);
            } catch (error) {
                return `${error.constructor.name}: ${error.message}`;
            }
        }"""
        return page.evaluate(code, [f"/{module}.js", function, list(values)])

    return called


def test_csv_is_read_as_python_reads_it(call: Call) -> None:
    rng = random.Random(0)
    for _ in range(40):
        rows = table(rng)
        stream = io.StringIO(newline="")
        csv.writer(stream, delimiter=rng.choice(",;\t|"), lineterminator=rng.choice(("\r\n", "\n"))).writerows(rows)
        found = call("csv", "read", rng.choice(("", "\ufeff")) + stream.getvalue())
        assert found["header"] == rows[0]
        assert [row["cells"] for row in found["rows"]] == rows[1:]


def test_csv_is_written_as_python_reads_it(call: Call) -> None:
    rng = random.Random(1)
    for delimiter in ",;\t|":
        rows = table(rng)
        written = call("csv", "write", rows, delimiter)
        assert list(csv.reader(io.StringIO(written, newline=""), delimiter=delimiter, strict=True)) == rows
        assert written.endswith("\r\n")


def table(rng: random.Random) -> list[list[str]]:
    """Return a header of two to four plain names, and rows of odd cells."""
    width = rng.randint(2, 4)
    odd = [
        "",
        "plain",
        "a,b",
        "a;b",
        "tab\tbed",
        'say "hi"',
        '"',
        "two\nlines",
        "two\r\nlines",
        " spaces ",
        "日本語 😀",
        "p|q",
        "''",
    ]
    return [[f"name{place}" for place in range(width)]] + [
        ["x", *(rng.choice(odd) for _ in range(width - 1))] for _ in range(rng.randint(1, 8))
    ]


def test_json_is_read_as_python_reads_it_and_written_as_it_stood(call: Call) -> None:
    rng = random.Random(2)
    odd = ["", "a,b", 'say "hi"', "\\", "]", "}{", "日本語 😀", None, 3, {"a": ["x, y]"]}, [1, [2]], True]
    for indent in (None, 1):
        rows = [{name: rng.choice(odd) for name in rng.sample("abcdé", rng.randint(0, 4))} for _ in range(20)]
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        for text in (lines, json.dumps(rows, indent=indent, ensure_ascii=False)) if rows else ():
            found = call("json_rows", "read", text)
            assert [json.loads(row["raw"]) for row in found["rows"]] == rows
            assert found["isArray"] == text.startswith("[")
            said = [{"raw": row["raw"], "fields": {"new": 1.5}} for row in found["rows"]]
            written = call("json_rows", "write", said, found["isArray"])
            back = json.loads(written) if found["isArray"] else [json.loads(line) for line in written.splitlines()]
            assert back == [{**row, "new": 1.5} for row in rows]
    long = '{"id": 1234567890123456789, "at": [-98765432109876543210, 1.5, 7], "text": "12345678901234567890"}'
    exact = {"raw": long, "whole": call("json_rows", "parseExactly", long)}
    assert json.loads(call("json_rows", "write", [exact], False)) == json.loads(long)
    assert call("json_rows", "read", '{"a": 1}\n{"a": }').startswith("BadFile: Line 2 is no JSON object")
    assert call("json_rows", "read", "[1]").startswith("BadFile: Row 1 is no JSON object")


def test_csv_knows_the_lines_of_its_rows(call: Call) -> None:
    found = call("csv", "read", 'text,n\r\n"one\r\ntwo",1\r\n\r\nlast,2')
    assert [(row["line"], row["cells"]) for row in found["rows"]] == [(2, ["one\r\ntwo", "1"]), (5, ["last", "2"])]
    assert call("csv", "read", "text\n a \n")["rows"][0]["cells"] == [" a "]
    nameless = call("csv", "read", " a,,c\n1,2,3")
    assert nameless["header"] == ["a", "column 2", "c"] and nameless["names"] == [" a", "", "c"]
    assert call("csv", "free", ["label", "label", "new"], ["label", "label 2"]) == ["label 3", "label 4", "new"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "BadFile: The file is empty."),
        ('a,b\n1,"2\n3,4\n', "BadFile: Line 2: a quote is opened and never closed."),
        ('a,b\n1,"2"3\n', "BadFile: Line 2: something stands behind a closing quote"),
    ],
)
def test_csv_that_is_none_is_told_with_its_line(call: Call, text: str, message: str) -> None:
    assert call("csv", "read", text).startswith(message)


def test_files_are_decoded_strictly(call: Call) -> None:
    text = "text\ngrüße 😀\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert call("csv", "decode", list(text.encode(encoding))) == text
    assert call("csv", "read", text)["newline"] == "\n" and call("csv", "write", [["a"], ["b"]], ",", "\n") == "a\nb\n"
    assert call("csv", "encodingOf", list(text.encode("utf-16"))) == "utf-16le"
    assert call("csv", "decode", list(text.encode("utf-8")[:-4])).startswith("BadFile: The file is not UTF-8")


def test_spans_are_counted_in_code_points(call: Call) -> None:
    text = "😀 Ana 👩‍👩‍👧 lives in São Paulo 🇧🇷."
    for name in ("Ana", "São Paulo", "👩‍👩‍👧", "🇧🇷"):
        start = text.index(name)
        parts = call("marks", "cut", text, [{"start": start, "end": start + len(name)}])
        assert [part["text"] for part in parts if part["span"]] == [name]
        assert "".join(part["text"] for part in parts) == text


def test_spans_that_overlap_or_lie_outside_lose_no_text(call: Call) -> None:
    spans = [
        {"start": 6, "end": 11},
        {"start": 0, "end": 5},
        {"start": 3, "end": 8},
        {"start": 9, "end": 90},
        {"start": 2, "end": 2},
    ]
    parts = call("marks", "cut", "hello world", spans)
    assert [(part["text"], bool(part["span"])) for part in parts] == [("hello", True), (" ", False), ("world", True)]
    assert call("marks", "cut", "", []) == [{"text": "", "span": None}]


def test_shares_tell_nearly_from_wholly(call: Call) -> None:
    shares = (0, 0.0004, 0.5, 0.97321, 0.9996, 1)
    assert [call("elements", "percent", share) for share in shares] == [
        "0.0%", "under 0.1%", "50.0%", "97.3%", "over 99.9%", "100.0%"
    ]  # fmt: skip
