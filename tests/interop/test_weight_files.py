"""Weight files: shards of both kinds are put together; a damaged file of either kind is told, whatever the damage."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from osbert.errors import UserError
from osbert.guarded import read_object
from osbert.interop.files.weight_files import read_file, read_tensors
from osbert.interop.folder import open_folder
from osbert.interop.huggingface import folders as huggingface
from osbert.models.contract import Learner
from refusals import refusal

SHARDS = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")


def write_shards(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write a pytorch_model.bin in two shards with their index, as transformers did."""
    where = {name: SHARDS[place % 2] for place, name in enumerate(tensors)}
    for shard in SHARDS:
        torch.save({name: tensors[name] for name in tensors if where[name] == shard}, folder / shard)
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def test_a_pickle_in_shards(tmp_path: Path, make_learner: Callable[..., Learner]) -> None:
    huggingface.write_model(make_learner(["mlm"]), tmp_path)
    whole = read_tensors(tmp_path)
    state = open_folder(tmp_path).backbone.state_dict()
    (tmp_path / "model.safetensors").unlink()
    write_shards(tmp_path, whole)
    found = read_tensors(tmp_path)
    assert found.keys() == whole.keys() and all(torch.equal(found[name], whole[name]) for name in whole)
    again = open_folder(tmp_path).backbone.state_dict()
    assert all(torch.equal(part, again[name]) for name, part in state.items())
    torch.save({}, tmp_path / SHARDS[0])
    with refusal("damaged-file", "index.json", (len(whole) + 1) // 2):
        _ = open_folder(tmp_path).backbone
    (tmp_path / SHARDS[1]).unlink()
    with refusal("missing-file", SHARDS[1], "pytorch_model.bin.index.json"):
        _ = open_folder(tmp_path).backbone


@pytest.mark.parametrize("named", [5, None, ["x"], "", "../x.bin", "/etc/passwd"])
def test_an_index_that_names_no_files(tmp_path: Path, named: object) -> None:
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": named, "b": named}}))
    with refusal("damaged-file"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("content", [b".", b"a", b"\x80\x02]a.", b"\x80\x02X\x05", b"\x80\x02R.", b"PK\x03\x04", b""])
def test_a_pickle_of_nonsense(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(content)
    with refusal("damaged-file", "pytorch_model.bin"):
        read_file(path)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_pickle_with_flipped_bytes_is_told_or_read(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.ones(4, 4), "b": torch.ones(3)}, path, _use_new_zipfile_serialization=zipped)
    good, told = path.read_bytes(), 0
    for place in range(0, len(good), max(1, len(good) // 300)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x15]) + good[place + 1 :])
        try:
            assert read_file(path)
        except UserError as error:
            told += 1
            assert str(path) in str(error)
    assert told > 20


def test_a_pickle_with_other_than_names(tmp_path: Path) -> None:
    torch.save({1: torch.ones(2)}, tmp_path / "pytorch_model.bin")
    with refusal("damaged-file"):
        read_file(tmp_path / "pytorch_model.bin")


ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "header",
    [
        *({"a": {**ONE, "data_offsets": offsets}} for offsets in ([], [0, "8"], [0, None], [0, -8], [4, 8], {}, 5)),
        *({"a": {**ONE, "shape": shape}} for shape in ([-2], [3], "2", None)),
        *({"a": {**ONE, "dtype": kind}} for kind in ("X", None, 3)),
        {"a": []},
        [],
        5,
        "[" * 100_000,
    ],
)
def test_a_header_of_nonsense(tmp_path: Path, header: object) -> None:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with refusal("damaged-file", "model.safetensors"):
        read_file(path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "9" * 5000 + "}", "{", b"\xff"])
def test_json_that_cannot_be_read(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with refusal("wrong-format", "config.json"):
        read_object(path)
