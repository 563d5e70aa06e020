"""The settings of a verb as options, which cyclopts reads: each way to write one, each mistake, and the help."""

from __future__ import annotations

import pydantic  # noqa: F401  (cyclopts validates by it, where something has imported it)
import pytest

from cars import Car, Engine
from osbert import recipe
from osbert.options import among, parse_settings
from refusals import refusal


def car(*words: str) -> Car:
    table = recipe.override({"body": {"doors": 4}}, parse_settings(words, Car), schema=Car)
    return recipe.build(Car, table, where="car.toml")


def test_every_way_to_write_a_setting() -> None:
    made = car("--engine.cylinders", "6", "--power=3e-1", "--fuel", "diesel", "--turbo", "--name", "my-car")
    assert made.engine == Engine(cylinders=6, power=0.3, fuel="diesel", turbo=True)
    assert made.name == "my-car"
    assert car("--doors", "1_000").body.doors == 1000
    assert car("--parts", "a,b , c").parts == ("a", "b", "c")
    assert car("--parts", '["a", "b"]').parts == ("a", "b")
    assert car("--parts", "").parts == ()
    assert car("--parts=").parts == ()
    assert car("--gears=5").engine.gears == (5,)
    assert car("--gears", "-1,-2").engine.gears == (-1, -2)
    assert car("--engine.limit", "7").engine.limit == 7
    assert car("--engine.limit", "none").engine.limit is None
    assert car("--power", "-2").engine.power == -2.0
    assert car("--name", "-x").name == "-x"
    assert car("--name", "a=b").name == "a=b"
    assert car("--name=--x").name == "--x"
    assert car("--name", '{"a": 1}').name == '{"a": 1}'


@pytest.mark.parametrize(
    "words",
    [
        ("--cylinders", "2", "--engine.cylinders", "3"),
        ("--engine.cylinders", "2", "--cylinders", "3"),
        ("--cylinders=2", "--cylinders", "3"),
    ],
)
def test_the_last_one_holds(words: tuple[str, ...]) -> None:
    assert car(*words).engine.cylinders == 3


@pytest.mark.parametrize(
    ("words", "value"),
    [(["--turbo"], True), (["--no-turbo"], False), (["--turbo", "false"], False), (["--turbo=true"], True),
     (["--turbo", "--name", "x"], True), (["--turbo", "--no-turbo"], False), (["--no-turbo", "--turbo"], True)],
)  # fmt: skip
def test_booleans(words: list[str], value: bool) -> None:
    assert car(*words).engine.turbo is value


@pytest.mark.parametrize("word", ["--no-cross-country", "--no-cross_country", "--cross_country=false"])
def test_hyphens_and_underscores(word: str) -> None:
    assert car(word).engine.cross_country is False


def test_those_of_one_table_among_others() -> None:
    words = ["--power", "3", "--doors", "5", "--turbo", "--turbine", "--nothing", "x"]
    assert among(words, Engine) == {"power": "3", "turbo": True}


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["--cylinder", "3"], ("unknown-setting", "--cylinder", "'cylinders'")),
        (["--limit", "3"], ("ambiguous-setting", "--limit", "--engine.limit", "--body.limit")),
        (["--name"], ("missing-value", "--name", "text")),
        (["--name", "--turbo"], ("missing-value", "--name")),
        (["name", "x"], ("not-a-setting", "'name'")),
        (["-x", "3"], ("not-a-setting", "'-x'")),
        (["--turbo", "maybe"], ("not-a-setting", "'maybe'")),
        (["--no-name", "x"], ("invalid-value", "--no-name")),
        (["--no-turbo=true"], ("invalid-value", "--no-turbo")),
        (["--doors", "two"], ("invalid-value", "doors", "integer", "'two'")),
        (["--turbo=maybe"], ("invalid-value", "turbo", "true|false", "'maybe'")),
        (["--made", "3"], ("unknown-setting", "--made")),
    ],
)
def test_mistakes(words: list[str], refused: tuple[str, ...]) -> None:
    with refusal(*refused):
        car(*words)
