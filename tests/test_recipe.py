"""Settings: read strictly, all mistakes told at once, and the same after a round trip through TOML."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cars import Body, Car, Engine
from osbert import recipe
from osbert.files import write_text
from refusals import refusal

GOOD = {"body": {"doors": 4}}


def build(table: dict) -> Car:
    return recipe.build(Car, table, where="car.toml")


def test_tables_become_dataclasses() -> None:
    table = {"name": "x", "parts": ["a", "b"], "engine": {"power": 2, "gears": [3]}, "body": {"doors": 5}}
    assert build(table) == Car(name="x", parts=("a", "b"), engine=Engine(power=2.0, gears=(3,)), body=Body(doors=5))
    assert isinstance(build(table).engine.power, float)


def test_all_mistakes_are_told_at_once() -> None:
    with refusal("unknown-setting", "car.toml") as caught:
        build(
            {
                "nam": "x",
                "parts": "abc",
                "engine": {
                    "cylinder": 3, "power": "much", "fuel": "disel", "turbo": 1, "gears": [1, "x"], "limit": 1.5
                },
                "body": {},
            }
        )  # fmt: skip
    assert caught.value.codes == ("unknown-setting", "invalid-value", "missing-setting")
    lines = str(caught.value).splitlines()[1:]
    for values in (
        ("'nam'", "'name'"),
        ("'parts'", "'abc'"),
        ("'engine.cylinder'", "'cylinders'"),
        ("'engine.power'", "number", "'much'"),
        ("'engine.fuel'", "'petrol', 'diesel', 'none'", "'disel'"),
        ("'engine.turbo'", "true|false", "1"),
        ("'engine.gears'", "integer", "'x'"),
        ("'engine.limit'", "integer", "1.5"),
        ("'body.doors'",),
    ):
        assert len([line for line in lines if all(value in line for value in values)]) == 1, values
    assert len(lines) == 9


def test_a_value_refused_by_the_settings_themselves_is_told_beside_the_rest() -> None:
    with refusal("invalid-setting", "engine", "cylinders", "1", "0", "'body.doors'", "integer") as caught:
        build({"engine": {"cylinders": 0}, "body": {"doors": "two"}})
    assert "invalid-value" in caught.value.codes


def test_a_number_of_numpy_is_a_number() -> None:
    car = build({"body": {"doors": np.int64(3)}, "engine": {"power": np.float32(0.5), "fuel": np.str_("diesel")}})
    assert car == build({"body": {"doors": 3}, "engine": {"power": 0.5, "fuel": "diesel"}})
    assert type(car.body.doors) is int
    with refusal("invalid-value", "'body.doors'", "integer"):
        build({"body": {"doors": np.float64(3)}})


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1]])
def test_an_integer_is_an_integer(value) -> None:
    with refusal("invalid-value", "'body.doors'", "integer"):
        build({"body": {"doors": value}})


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-inf", "1" + "0" * 400])
def test_a_number_is_finite(tmp_path: Path, value: str) -> None:
    path = tmp_path / "car.toml"
    path.write_text(f"name = 'x'\nparts = []\n[engine]\npower = {value}\n[body]\ndoors = 5\n")
    with refusal("invalid-value", "'engine.power'", value.lstrip("-")[:30]) as caught:
        build(recipe.read(path))
    assert len(str(caught.value).splitlines()) == 2
    overridden = recipe.override(GOOD, {"power": recipe.Word(value)}, schema=Car)
    with refusal("invalid-value", "'engine.power'"):
        build(overridden)


def test_a_table_must_be_a_table() -> None:
    with refusal("invalid-value", "'engine'", "3"):
        build({**GOOD, "engine": 3})
    overridden = recipe.override({**GOOD, "engine": 3}, {"cylinders": 2}, schema=Car)
    assert build(overridden).engine.cylinders == 2


def test_fields_that_are_not_settings_are_unknown() -> None:
    with refusal("unknown-setting", "'body.made'"):
        build({"body": {"doors": 1, "made": 2}})


def keywords(**settings: object) -> Car:
    return build(recipe.override(GOOD, settings, schema=Car))


def test_keywords_override_by_the_same_names() -> None:
    car = keywords(engine_cylinders=6, power=2, parts=["a"], turbo=True, **{"body.limit": 9})
    assert (car.engine.cylinders, car.engine.power, car.parts, car.engine.turbo, car.body.limit) == (
        6,
        2.0,
        ("a",),
        True,
        9,
    )
    assert recipe.resolve_names({"engine_limit": None, "doors": 1}, schema=Car) == {"engine.limit", "body.doors"}


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"cylinder": 3}, ("unknown-setting", "--cylinder", "'cylinders'")),
        ({"limit": 3}, ("ambiguous-setting", "--engine.limit", "--body.limit")),
        ({"doors": "4"}, ("invalid-value", "doors", "integer", "'4'")),
        ({"power": "2"}, ("invalid-value", "power", "number", "'2'")),
        ({"turbo": "true"}, ("invalid-value", "turbo", "true|false", "'true'")),
        ({"no_turbo": True}, ("unknown-setting", "--no-turbo", "'turbo'")),
        ({"engine": {"power": 1}}, ("unknown-setting", "--engine")),
    ],
)
def test_keywords_are_checked_and_never_guessed(settings, refused) -> None:
    with refusal(*refused):
        keywords(**settings)


def test_settings_of_one_dataclass_are_made_from_keywords() -> None:
    assert recipe.settings(Engine, {"cylinders": 2}) == Engine(cylinders=2)
    with refusal("unknown-setting", "cylinders"):
        recipe.settings(Engine, {"cylindres": 2})


def test_overriding_leaves_the_table_alone() -> None:
    table = {"engine": {"power": 1.0}, "body": {"doors": 2}}
    recipe.override(table, {"power": 9}, schema=Car)
    assert table == {"engine": {"power": 1.0}, "body": {"doors": 2}}


def test_settings_are_described_by_name_type_default_and_the_string_below() -> None:
    rows = {name: texts for name, *texts in recipe.describe_settings(Car)}
    assert rows["engine.cylinders"] == ["integer", "4", "How many there are."]
    assert rows["engine.fuel"] == ["petrol|diesel|none", '"petrol"', "What it burns."]
    assert rows["engine.limit"] == ["integer or none", "none", ""]
    assert rows["engine.gears"] == ["a list of integer", "[1, 2]", ""]
    assert rows["body.doors"] == ["integer", "", ""]
    assert "body.made" not in rows


def test_a_schema_made_at_run_time_is_described() -> None:
    made = dataclasses.make_dataclass("Made", [("engine", Engine)], frozen=True, kw_only=True)
    assert ("engine.cylinders", "integer", "4", "How many there are.") in [*recipe.describe_settings(made)]


@given(
    name=st.text(st.characters(exclude_categories=["Cs"])),
    power=st.floats(allow_nan=False, allow_infinity=False),
    cylinders=st.integers(1, 10**12),
    limit=st.none() | st.integers(),
    parts=st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    fuel=st.sampled_from(["petrol", "diesel", "none"]),
    turbo=st.booleans(),
)
def test_settings_survive_toml(name, power, cylinders, limit, parts, fuel, turbo) -> None:
    engine = Engine(cylinders=cylinders, power=power, fuel=fuel, turbo=turbo, limit=limit)
    car = Car(name=name, parts=tuple(parts), engine=engine, body=Body(doors=2))
    table = recipe.as_table(car)
    table["body"].pop("made")
    read = tomllib.loads(recipe.dump(table))
    assert build(read) == car
    assert recipe.difference(read, table) == []


def test_difference_names_each_setting() -> None:
    old = {"name": "a", "engine": {"power": 1.0, "limit": None}, "gone": {"x": 1}, "odd": {"y": 1}}
    new = {"name": "b", "engine": {"power": 2.0}, "come": {"y": "z"}, "odd": 3}
    assert recipe.difference(old, new) == [
        'come.y: none -> "z"',
        "engine.power: 1.0 -> 2.0",
        "gone.x: 1 -> none",
        'name: "a" -> "b"',
        "odd: {'y': 1} -> 3",
    ]
    assert recipe.difference(old, old) == []


def test_reading(tmp_path: Path) -> None:
    assert recipe.read("bert-base")["model"]["layers"] == 12
    path = tmp_path / "own.toml"
    path.write_bytes(b"\xef\xbb\xbfname = 'x'\n")
    assert recipe.read(path) == {"name": "x"}
    path.write_text("name = ")
    with refusal("invalid-recipe", "own.toml"):
        recipe.read(path)
    path.write_bytes(b"name = '\xff'\n")
    with refusal("invalid-recipe", "8"):
        recipe.read(path)
    with refusal("unknown-recipe", "bert-base"):
        recipe.read("bert_base")


def test_a_file_name_that_is_not_utf_8_leaves_a_recipe_that_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    write_text(path, recipe.dump({"task": "classify", "classify": {"data": "caf\udce9/\udcff.csv"}}))
    assert recipe.read(path)["classify"] == {"data": "caf\ufffd/\ufffd.csv"}


@pytest.mark.parametrize("settings", [{"power": 1.0, "engine.power": 2.0}, {"engine_power": 1.0, "engine.power": 1.0}])
def test_a_setting_under_two_names_is_refused(settings: dict[str, float]) -> None:
    with refusal("duplicate-name", *settings):
        recipe.override(GOOD, settings, schema=Car)
    with refusal("duplicate-name"):
        recipe.resolve_names(settings, schema=Car)
