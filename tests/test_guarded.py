"""Guarded parsing: what is too deep or too much is refused; what is written in strings does not count."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert import guarded
from osbert.guarded import DEEPEST, LONGEST_KEY, leads_below, parse_json, parse_toml, read_bytes, read_json
from osbert.interop.files.weight_files import read_file
from osbert.interop.sentence_files import read_sentence_model
from osbert.training.tracking import read_lines
from refusals import refusal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(alphabet='ab\\"[]{},é\n'),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(alphabet='a\\"[,', max_size=3), inner),
)


@given(VALUES)
def test_json_is_what_json_says(value: Any) -> None:
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False, indent=1)) == value


@pytest.mark.parametrize("depth", [1, DEEPEST - 1, DEEPEST])
def test_json_may_be_nested_so_deep(depth: int) -> None:
    parse_json("[" * depth + "]" * depth)
    parse_json('{"a":' * depth + "1" + "}" * depth)


@pytest.mark.parametrize("unit", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [DEEPEST + 1, 1000, 100_000])
def test_json_nested_deeper_is_refused(unit: str, depth: int) -> None:
    with pytest.raises(JSONDecodeError):
        parse_json(unit * depth)


@pytest.mark.parametrize("text", ['"[[["', '"\\\\[[[\\"[[["', '"{,{,"', '"\\\\"'])
def test_brackets_in_strings_do_not_count(text: str) -> None:
    inner = json.loads(text) * 1000
    assert parse_json(json.dumps({"text": inner})) == {"text": inner}


def test_strings_are_known_across_the_blocks_of_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {f'k"\\{number}': ["[", "\\", '"{[,', {"a": "]\\\\"}] for number in range(40)}
    for block in range(1, 60):
        monkeypatch.setattr(guarded, "_BLOCK", block)
        assert parse_json(json.dumps(value)) == value
        with pytest.raises(JSONDecodeError):
            parse_json(json.dumps(value)[:-1] + ',"x":' + "[" * DEEPEST + "]" * DEEPEST + "}")


def test_more_values_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "FREE", 10_000)
    with pytest.raises(JSONDecodeError):
        parse_json('{"text": [' + "[]," * 1000 + "[]]}")
    assert parse_json(json.dumps({"text": "[]," * 1000})) == {"text": "[]," * 1000}


@pytest.mark.parametrize("text", ["", "{", "1" * 5000, '{"a": 1' + "0" * 9999 + "}", "[1,]"])
def test_whatever_is_wrong_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(JSONDecodeError):
        parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * (LONGEST_KEY + 1)) + " = 1",
        "x = {" + " . ".join(["a"] * (LONGEST_KEY + 1)) + " = 1}",
        "[" + ".".join(['"a b"'] * 5000) + "]",
        "a = " + "[" * 5000,
        "a = " + "{b = " * 5000,
        "a = 1" + "0" * 5000,
        "a = 2026-13-41",
        "#" * (guarded.RECIPE + 1),
    ],
)
def test_toml_that_costs_too_much_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_toml(text)


DOTTED = ".".join(["a"] * (LONGEST_KEY + 1))


@pytest.mark.parametrize(
    "text",
    [
        f"# {DOTTED} = 1",
        f"x = 1 # it's {DOTTED}",
        f'url = "www.{DOTTED}.org"',
        f"url = 'www.{DOTTED}.org'",
        f'x = "\\"{DOTTED}"',
        f'x = """\n{DOTTED} = 1\n\\""" {DOTTED} \'"""""',
        f"x = '''\n{DOTTED} = 1\n\"\"\" \\'''''",
        f'x = ["{DOTTED}", """\n{DOTTED}"""] # "',
        f'"{DOTTED}".b = 1',
    ],
)
def test_dots_in_strings_and_comments_are_no_keys(text: str) -> None:
    assert parse_toml(text) == tomllib.loads(text)


@pytest.mark.parametrize(
    "before",
    [
        *("", "  ", "[", "[[", "x = {", "x = {y = 1, ", "x = [{", "# it's\n", 'x = "#"\n', "x = '\"'\n", "x = 'a\\'\n"),
        *(
            'x = "\\""\n',
            'x = """\n\\""""\n',
            'x = {y = """a"""", ',
            "x = {y = '''a''''', ",
            '"\\"".',
            "'#'.",
            '"""""".\n',
        ),
    ],
)
def test_a_long_key_is_refused_wherever_it_stands(before: str) -> None:
    with pytest.raises(ValueError, match=f"line {before.count(chr(10)) + 1} has a key of more than"):
        parse_toml(f"{before}{DOTTED} = 1")


@pytest.mark.parametrize("unit", ['"', '"\\', '\\"""', "'", "''''", '"a\\"""', "a.", "a.b ", '"a" . ', "#"])
def test_long_toml_is_scanned_once(unit: str) -> None:
    text = f'"{unit * (guarded.RECIPE // len(unit) - 1)}'
    assert sum(len(found[0]) for found in guarded._TOML.finditer(text)) <= len(text)
    with pytest.raises(ValueError):
        parse_toml(text)


@pytest.mark.parametrize("text", ["a.b.c = 1", 'path = "../a.b/c.d.txt"', "x = [0.1, 0.2]\n[a.b]\nc = '''\n...'''"])
def test_toml_is_what_tomllib_says(text: str) -> None:
    assert parse_toml(text) == tomllib.loads(text)


def test_a_file_has_a_largest_size_and_may_have_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('\ufeff{"a": 1}', encoding="utf-8")
    assert read_json(path) == {"a": 1}
    assert len(read_bytes(path, most=11)) == 11
    with refusal("too-large", "config.json", "11"):
        read_bytes(path, most=10)


@pytest.mark.parametrize("name", ["", "a", "1_Pooling", "a/b/", "./a", "..a", "a b\xe9"])
def test_a_path_that_stays_in_the_folder(name: str) -> None:
    assert leads_below(name)


@pytest.mark.parametrize(
    "name", ["..", "../a", "a/../../b", "/a", "//a", "C:\\a", "..\\a", "a\0", "a\n", "a" * 201, "a\ud800", 5, None]
)
def test_a_path_that_leaves_the_folder_or_is_none(name: object) -> None:
    assert not leads_below(name)


@pytest.mark.parametrize("read", [read_bytes, read_json, read_lines, read_file, read_sentence_model])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, within: None, read: Callable[[Path], object]) -> None:
    path = tmp_path / "model.safetensors"
    if read is read_sentence_model:
        (tmp_path / "modules.json").write_text(
            '[{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": "parts"}]'
        )
        (tmp_path / "parts").mkdir()
        path = tmp_path / "parts" / "config.json"
    os.mkfifo(path)
    with refusal("not-a-regular-file", path.name):
        read(tmp_path if read is read_sentence_model else path)


def test_a_device_is_refused() -> None:
    with refusal("not-a-regular-file"):
        read_bytes(Path("/dev/zero"))


def test_what_is_missing_or_a_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
