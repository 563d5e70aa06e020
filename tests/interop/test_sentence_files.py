"""The files of sentence-transformers: what they name lies below the model's folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osbert.data.late_interaction import LateInteraction
from osbert.interop.sentence_files import (
    FIELD,
    MODULES,
    PROMPTS,
    Prompts,
    SentenceModel,
    as_field,
    of_field,
    read_sentence_model,
    write_sentence_model,
)
from osbert.interop.sentence_parts import Dense, TokenMask
from refusals import refusal

MODEL = SentenceModel(pooling="max", normalize=True, length=24)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    for number, model in enumerate((MODEL, replace(MODEL, normalize=False, dimensions=4))):
        write_sentence_model(tmp_path / f"{number}", model, width=8)
        assert read_sentence_model(tmp_path / f"{number}") == model
        assert of_field({FIELD: as_field(model)}, where="config.json") == model


def test_a_cut_of_the_folder_follows_the_part_that_normalizes(tmp_path: Path) -> None:
    write_sentence_model(tmp_path, replace(MODEL, dimensions=4), width=8)
    model = read_sentence_model(tmp_path)
    assert model is not None
    for again in (model, of_field({FIELD: as_field(model)}, where="config.json")):
        assert again is not None and not again.normalize and again.dimensions == 4
        assert [part.kind for part in again.parts] == ["Normalize"]
    with refusal("not-convertible", "Dense"):
        as_field(replace(model, parts=(Dense.linear(np.eye(4, 8, dtype=np.float32)), *model.parts)))


@pytest.mark.parametrize("role", ["document", "passage"])
def test_markers_of_many_vectors_are_read_again_whatever_the_role_is_called(tmp_path: Path, role: str) -> None:
    """PyLate's form has a marker of queries and one of documents alone: others' roles would lose theirs there."""
    markers = {"query": "[Q] ", role: "[D] "}
    model = SentenceModel(
        pooling="colbert",
        normalize=True,
        length=24,
        prompts=Prompts(texts=markers),
        parts=(Dense.linear(np.eye(4, 8, dtype=np.float32)), TokenMask(skipped=(".",))),
        similarity="maxsim",
        late=LateInteraction(query_length=8, expansion=8, prefixes=markers),
    )
    tokens = [{"content": marker, "special": True} for marker in markers.values()]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens}))
    write_sentence_model(tmp_path, model, width=8)
    again = read_sentence_model(tmp_path)
    assert again is not None and again.late is not None
    assert dict(again.prompts.texts) == markers
    assert dict(again.late.prefixes) == markers


@pytest.mark.parametrize("name", ["1_Pooling", "parts/pooling", "./1_Pooling/", "", "..pooling"])
def test_the_pooling_may_be_anywhere_below_the_folder(tmp_path: Path, name: str) -> None:
    assert moved(tmp_path / "model", name) == MODEL


@pytest.mark.parametrize(
    "name",
    ["../outside", "1_Pooling/../../outside", "/outside", "C:\\outside", "..\\outside", "a\0b", "a" * 300, 5, None, []],
)
def test_the_pooling_is_not_outside_of_the_folder(tmp_path: Path, name: object) -> None:
    with refusal("wrong-format", "modules.json"):
        moved(tmp_path / "model", name)


@pytest.mark.parametrize(
    ("settings", "prompts"),
    [
        (
            {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": None},
            Prompts(texts={"query": "query: ", "passage": "passage: "}),
        ),
        (
            {"prompts": {"query": None}, "default_prompt_name": "document"},
            Prompts(texts={"query": ""}, default="document"),
        ),
        ({"prompts": None}, Prompts()),
        ({"__version__": {}}, Prompts()),
        ({"prompts": ["query: "]}, None),
        ({"prompts": {"query": 5}}, None),
        ({"prompts": {"query": "query: "}, "default_prompt_name": "none of them"}, None),
    ],
)
def test_prompts_are_read_and_written(tmp_path: Path, settings: dict[str, Any], prompts: Prompts | None) -> None:
    write_sentence_model(tmp_path, MODEL, width=8)
    (tmp_path / PROMPTS).write_text(json.dumps(settings))
    if prompts is None:
        with refusal("wrong-format", PROMPTS):
            read_sentence_model(tmp_path)
        return
    model = read_sentence_model(tmp_path)
    assert model == replace(MODEL, prompts=prompts)
    write_sentence_model(tmp_path / "again", model, width=8)
    assert read_sentence_model(tmp_path / "again") == model
    assert of_field({FIELD: as_field(model)}, where="config.json") == model


def moved(folder: Path, name: object) -> SentenceModel | None:
    """Return what a folder says whose pooling lies under another name; also where only the file is said to be there."""
    write_sentence_model(folder, MODEL, width=8)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = name
    (folder / "modules.json").write_text(json.dumps(modules))
    content = (folder / "1_Pooling" / "config.json").read_text()
    (folder.parent / "outside").mkdir(exist_ok=True)
    (folder.parent / "outside" / "config.json").write_text(content)
    if isinstance(name, str) and "outside" not in name and "\0" not in name and len(name) < 200:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "config.json").write_text(content)
    return read_sentence_model(folder)


def test_code_of_others_and_damaged_dimensions_are_refused(tmp_path: Path) -> None:
    write_sentence_model(tmp_path, MODEL, width=8)
    modules = json.loads((tmp_path / MODULES).read_text())
    (tmp_path / PROMPTS).write_text(json.dumps({"truncate_dim": "4"}))
    with refusal("wrong-format", "truncate_dim"):
        read_sentence_model(tmp_path)
    (tmp_path / PROMPTS).write_text("{}")
    modules[1]["type"] = "custom_code.pooling.Pooling"
    (tmp_path / MODULES).write_text(json.dumps(modules))
    with refusal("unsupported-model", "custom_code.pooling.Pooling"):
        read_sentence_model(tmp_path)
