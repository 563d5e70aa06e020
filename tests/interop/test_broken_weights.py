"""Weights that are NaN or infinite: refused by every way in, by file and tensor; large ones are not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from safetensors.torch import load_file

import tiny_runs
from osbert.inference.engine import load
from osbert.interop.conversion import ModelParts, model_of, open_any
from osbert.interop.files.weight_files import read_file, read_tensors, require_finite, write_tensors
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.interop.onnx.files import open_onnx
from osbert.interop.tensorflow.bundle import open_bundle, write_bundle
from osbert.interop.tokenizers import write_tokenizer
from osbert.interop.tuned_files import TUNED, keep_tuned, read_whole
from osbert.models.contract import Backbone, Learner
from osbert.text.tokenizer import Tokenizer
from refusals import refusal

NAME = "bert.encoder.layer.1.output.dense.weight"
TENSORFLOW = Path(__file__).parent / "tensorflow" / "bert"


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


def test_a_checkpoint_of_tensorflow(tmp_path: Path) -> None:
    shutil.copytree(TENSORFLOW, tmp_path / "bert")
    bundle = open_bundle(tmp_path / "bert" / "bert_model.ckpt")
    tensors = {name: bundle.read(name) for name in bundle.entries}
    tensors["bert/pooler/dense/bias"][0] = torch.nan
    write_bundle(tensors, tmp_path / "bert" / "bert_model.ckpt")
    with refusal("not-finite", "bert_model.ckpt", "1"):
        model_of(open_any(tmp_path / "bert"))


def test_an_exported_file(tmp_path: Path) -> None:
    run = tiny_runs.write_run(tmp_path / "run", tiny_runs.TASKS["classifier"])
    path = tiny_runs.write_exported(tmp_path / "exported", run) / "model.onnx"
    graph = onnx.load(path)
    bias = next(one for one in graph.graph.initializer if one.name.endswith("pooler.dense.bias") or one.dims == [16])
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + float("nan"), bias.name))
    onnx.save(graph, path)
    with refusal("not-finite", "model.onnx", bias.name, "16"):
        open_onnx(path)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_a_sum_that_overflows_is_no_damage(tmp_path: Path, kind: torch.dtype) -> None:
    largest = torch.full((1000,), torch.finfo(kind).max, dtype=kind)
    write_tensors({"large": largest, "whole": torch.arange(3), "none": torch.empty(0)}, tmp_path / "x.safetensors")
    assert torch.equal(read_file(tmp_path / "x.safetensors")["large"], largest)


def test_a_double_is_tested_as_the_float32_that_it_becomes(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors[NAME] = tensors[NAME].double()
    write_tensors(tensors, folder / "model.safetensors")
    load(folder)
    tensors[NAME].view(-1)[3] = 1e300
    write_tensors(tensors, folder / "model.safetensors")
    for opening in (load, read, read_whole, encoder):
        with refusal("not-finite", "model.safetensors", NAME, "1", "640"):
            opening(folder)


DTYPES = {
    4: "F4",
    6: "F6_E2M3 F6_E3M2",
    8: "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
    16: "I16 U16 F16 BF16",
    32: "I32 U32 F32",
    64: "I64 U64 F64 C64",
}
"""What a safetensors header can name, by the bits of a number."""


@pytest.mark.parametrize(("dtype", "size"), [(name, bits) for bits, names in DTYPES.items() for name in names.split()])
def test_every_dtype_of_safetensors_opens_or_is_refused_by_name(folder: Path, dtype: str, size: int) -> None:
    """Beside the model's own tensors, unused: eight zeros, so `size` bytes."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header["surplus"] = {"dtype": dtype, "shape": [8], "data_offsets": [len(data), len(data) + size]}
    words = json.dumps(header).encode()
    path.write_bytes(len(words).to_bytes(8, "little") + words + data + bytes(size))
    if dtype in ("F4", "C64"):
        with refusal("not-finite", "model.safetensors"):
            load(folder)
    elif dtype.startswith("F6_"):
        with refusal("damaged-file", "model.safetensors", dtype):
            load(folder)
    else:
        assert load(folder).embed(["a film"]).shape == (1, 16)


@pytest.mark.parametrize("dtype", [torch.uint1, torch.int4, torch.bits8, torch.float4_e2m1fn_x2, torch.complex32])
def test_dtypes_without_arithmetic_are_refused_by_name(tmp_path: Path, dtype: torch.dtype) -> None:
    with refusal("not-finite", "x.bin", dtype):
        require_finite({tmp_path / "x.bin": [("packed", torch.zeros(4, dtype=torch.int32).view(dtype))]})
