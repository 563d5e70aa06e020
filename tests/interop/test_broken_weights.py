"""Weights that are NaN or infinite: refused by every way in, by file and tensor; large ones are not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from osbert.inference.engine import load
from osbert.interop.conversion import ModelParts, model_of, open_any
from osbert.interop.files.weight_files import read_tensors, write_tensors
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.interop.tokenizers import write_tokenizer
from osbert.interop.tuned_files import TUNED, keep_tuned, read_whole
from osbert.models.contract import Backbone, Learner
from osbert.text.tokenizer import Tokenizer
from refusals import refusal

NAME = "bert.encoder.layer.1.output.dense.weight"


@pytest.fixture
def folder(tmp_path: Path, make_learner: Callable[..., Learner], tokenizer: Tokenizer) -> Path:
    huggingface.write_model(make_learner(["mlm"]), tmp_path / "model")
    write_tokenizer(tokenizer, tmp_path / "model")
    return tmp_path / "model"


def read(folder: Path) -> ModelParts:
    """Open a folder as osbert convert does."""
    return model_of(open_any(folder))


def encoder(folder: Path) -> Backbone:
    """Open a folder as osbert finetune does."""
    return open_folder(folder).backbone


def broken(folder: Path, *, value: float = float("nan")) -> dict[str, torch.Tensor]:
    """Return a folder's tensors with one number replaced in two of them."""
    tensors = load_file(folder / "model.safetensors")
    for name in (NAME, "cls.predictions.bias"):
        tensors[name].view(-1)[3] = value
    return tensors


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_every_tensor_is_named_with_its_file(folder: Path, value: float) -> None:
    write_tensors(broken(folder, value=value), folder / "model.safetensors")
    for opening in (load, read, read_whole, encoder):
        with refusal("not-finite") as refused:
            opening(folder)
        lines = str(refused.value).splitlines()[1:]
        assert len(lines) == 2 and all(str(folder / "model.safetensors") in line for line in lines)
        assert any(f"{NAME}, 1 of 640" in line for line in lines)


def test_shards_and_pickles_name_the_file_that_holds_it(folder: Path) -> None:
    tensors = broken(folder)
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    with refusal("not-finite", "pytorch_model.bin", NAME):
        read_tensors(folder)
    (folder / "pytorch_model.bin").unlink()
    torch.save(tensors, folder / "second.bin")
    torch.save({"whole": torch.ones(2)}, folder / "first.bin")
    where = dict.fromkeys(tensors, "second.bin") | {"whole": "first.bin"}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": where}))
    with refusal("not-finite", "second.bin", NAME):
        read_tensors(folder)


def test_what_was_tuned(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "tuned")
    keep_tuned(tmp_path / "tuned", folder, {})
    write_tensors({"classifier.weight": torch.full((2, 16), torch.inf)}, tmp_path / "tuned" / TUNED)
    with refusal("not-finite", "tuned.safetensors", "classifier.weight", "32"):
        read_whole(tmp_path / "tuned")
