"""Hashes of a finished run: a bit that is flipped in any file that predictions follow from is found on opening."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import osbert
from osbert import recipe
from osbert.errors import UserError
from osbert.inference.engine import load
from osbert.interop.conversion import ModelParts, model_of, open_any, write_model_as
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.tokenizers import write_tokenizer
from osbert.interop.tuned_files import keep_tuned
from osbert.models.contract import Backbone, Learner
from osbert.tasks.kinds.classify import Classify
from osbert.text.tokenizer import Tokenizer
from osbert.training import run_folder
from osbert.training.run_folder import RunFolder
from refusals import refusal

UNCHECKED = Opening(verify=False)
TASK = Classify(labels=("a", "b", "c"), text="text", temperature=1.0)


def read(folder: Path, opening: Opening = CAREFUL) -> ModelParts:
    """Open a folder as osbert convert does."""
    return model_of(open_any(folder, opening))


def tensors(folder: Path, opening: Opening = CAREFUL) -> dict[str, torch.Tensor]:
    """Read the weights alone."""
    return open_folder(folder, opening).tensors


def encoder(folder: Path, opening: Opening = CAREFUL) -> Backbone:
    """Open a folder as osbert finetune does."""
    source = open_folder(folder, opening)
    assert source.tokenizer
    return source.backbone


@pytest.fixture
def finished(tmp_path: Path, make_learner: Callable[..., Learner], tokenizer: Tokenizer) -> Path:
    """Return a finished run of a classifier."""
    folder = RunFolder(tmp_path / "run")
    folder.begin({"task": "classify"}, {"command": "finetune"}, inputs=())
    huggingface.write_model(make_learner(["classify"]), folder.folder)
    write_tokenizer(tokenizer, folder.folder, length=24)
    folder.write_recipe({"task": "classify", "classify": recipe.as_table(TASK)})
    folder.finish({"best": {}})
    return folder.folder


def flip(path: Path) -> None:
    """Flip the lowest bit of the byte in the middle of a file, or of the next digit in a text."""
    content = bytearray(path.read_bytes())
    place = len(content) // 2
    if path.suffix != ".safetensors":
        place = next(at for at in [*range(place, len(content)), *range(place)] if chr(content[at]).isalnum())
    content[place] ^= 1
    path.write_bytes(content)


def test_run_json_holds_the_hashes_of_what_predictions_follow_from(finished: Path) -> None:
    hashes = json.loads((finished / "run.json").read_text())["finished"]["sha256"]
    assert {"model.safetensors", "config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"} <= {*hashes}
    assert "recipe.toml" not in hashes and RunFolder(finished).find_changes() == []
    (finished / "recipe.toml").write_text((finished / "recipe.toml").read_text() + "# edited by hand\n")
    assert load(finished).predict(["good film"])


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt", "tokenizer.json"])
def test_a_flipped_bit_is_found_by_every_way_in(finished: Path, name: str) -> None:
    flip(finished / name)
    for opening in (load, osbert.load, read, tensors, encoder):
        with refusal("damaged-file", name, "--no-verify"):
            opening(finished)
    if name == "model.safetensors":
        assert load(finished, opening=UNCHECKED).predict(["good film"])
        assert osbert.load(finished, verify=False).predict(["good film"])
        model_of(open_any(finished, UNCHECKED))
        tensors(finished, UNCHECKED)


def test_every_changed_file_is_named(finished: Path) -> None:
    for name in ("vocab.txt", "model.safetensors"):
        flip(finished / name)
    with refusal("damaged-file") as refused:
        load(finished)
    assert [line.split(":")[0].rpartition("/")[2] for line in str(refused.value).splitlines()[1:]] == [
        "model.safetensors",
        "vocab.txt",
    ]


EDITS = {
    "labels in another order": ('["a", "b", "c"]', '["b", "a", "c"]'),
    "a label of another name": ('["a", "b", "c"]', '["a", "b", "d"]'),
    "temperature": ("temperature = 1.0", "temperature = 9.0"),
    "length": ("length = 512", "length = 5"),
    "another task": ('task = "classify"', 'task = "cola"'),
    "no task": ('task = "classify"', ""),
    "no setting": ("temperature = 1.0\n", ""),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_recipe_with_another_task_is_found_by_every_way_in(finished: Path, edit: tuple[str, str]) -> None:
    path = finished / "recipe.toml"
    text = path.read_text()
    assert edit[0] in text
    path.write_text(text.replace(*edit))
    for opening in (load, osbert.load, read, tensors):
        with refusal("damaged-file", "recipe.toml", "--no-verify"):
            opening(finished)
    assert tensors(finished, UNCHECKED)
    facts = json.loads((finished / "run.json").read_text())
    del facts["finished"]["task_sha256"]  # as in a run of an earlier version
    (finished / "run.json").write_text(json.dumps(facts))
    assert tensors(finished)


def test_a_recipe_may_say_that_the_data_lie_elsewhere(finished: Path) -> None:
    path = finished / "recipe.toml"
    settings = recipe.read(path)
    settings["classify"]["data"] = "elsewhere.csv"
    settings["training"] = {"log_every": 7}
    path.write_text("# by hand\n" + recipe.dump(dict(reversed(settings.items()))))
    assert load(finished).predict(["good film"])


@pytest.mark.parametrize("name", ["recipe.toml", "tokenizer_config.json", "vocab.txt", "modules.json"])
def test_a_file_that_is_missing_is_a_change(finished: Path, name: str) -> None:
    (finished / "modules.json").write_text("[]")
    RunFolder(finished).finish({})
    (finished / name).unlink()
    assert RunFolder(finished).find_changes() == [name]
    with refusal("damaged-file", name, "--no-verify"):
        load(finished)


def test_a_run_that_is_finished_again_has_new_hashes(finished: Path) -> None:
    """As an export and a comparison do, with the facts that were there before."""
    for name in ("vocab.txt", "recipe.toml"):
        (finished / name).unlink()
        RunFolder(finished).finish(RunFolder(finished).facts["finished"])
        assert RunFolder(finished).find_changes() == []


def test_a_run_without_hashes_opens(finished: Path) -> None:
    facts = json.loads((finished / "run.json").read_text())
    del facts["finished"]["sha256"]
    del facts["finished"]["task_sha256"]
    (finished / "run.json").write_text(json.dumps(facts))
    flip(finished / "model.safetensors")
    assert load(finished).predict(["good film"])


@pytest.mark.parametrize("hashes", [5, ["x"], {"model.safetensors": None}, {"../../etc/passwd": "x"}, {"x": {}}])
def test_hashes_that_are_none(finished: Path, hashes: object) -> None:
    """Only the names that osbert itself would write are looked for."""
    facts = json.loads((finished / "run.json").read_text())
    facts["finished"]["sha256"] = hashes
    (finished / "run.json").write_text(json.dumps(facts))
    known = isinstance(hashes, dict) and "model.safetensors" in hashes
    assert RunFolder(finished).find_changes() == (["model.safetensors"] if known else [])


@pytest.mark.parametrize("text", ["[]", "5", '{"finished": 1}', "[" * 100_000])
def test_a_run_json_that_is_none(finished: Path, text: str) -> None:
    (finished / "run.json").write_text(text)
    with refusal("damaged-file", "run.json"):
        load(finished)


def test_what_was_tuned_is_hashed_and_its_base_is_not_hashed_again(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = RunFolder(shutil.copytree(finished, tmp_path / "tuned"))
    keep_tuned(tuned.folder, finished, {})
    tuned.finish({})
    hashed: list[Path] = []
    sha256 = run_folder.file_sha256
    monkeypatch.setattr(run_folder, "file_sha256", lambda path: [hashed.append(path), sha256(path)][1])
    for opening in (load, read):
        hashed.clear()
        opening(tuned.folder)
        assert len(hashed) == len(set(hashed)) and {path.parent for path in hashed} == {tuned.folder}
    flip(tuned.folder / "tuned.safetensors")
    with refusal("damaged-file", "tuned.safetensors"):
        load(tuned.folder)


def test_a_converted_run_has_hashes_of_its_own(finished: Path, tmp_path: Path) -> None:
    write_model_as(model_of(open_any(finished)), tmp_path / "converted", "osbert")
    load(tmp_path / "converted")
    flip(tmp_path / "converted" / "model.safetensors")
    with refusal("damaged-file", "model.safetensors"):
        load(tmp_path / "converted")


def test_the_settings_as_words() -> None:
    assert CAREFUL.words == () and Opening(trust=True, verify=False).words == ("--trust", "--no-verify")
    assert dataclasses.replace(CAREFUL, trust=True).again == Opening(trust=True, verify=False)


@pytest.mark.parametrize("verify", [True, False])
def test_a_pipe_in_a_folder_is_never_waited_for(finished: Path, within: None, verify: bool) -> None:
    """Where a file may be left out, a pipe is none; else it is refused."""
    (finished / "modules.json").write_text("[]")
    (finished / "base.json").write_text("{}")
    for path in [path for path in finished.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        for opening in (load, read, encoder):
            with contextlib.suppress(UserError):
                opening(finished, opening=Opening(verify=verify))
        path.unlink()
        path.write_bytes(content)
    os.mkfifo(finished / "checkpoint")
    assert load(finished, opening=UNCHECKED).predict(["good film"])
