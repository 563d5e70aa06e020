"""Folders of models that small files make costly: a name -> what writes one and opens it, which must be refused."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from osbert import recipe
from osbert.guarded import read_object
from osbert.interop.files.weight_files import read_tensors
from osbert.interop.folder import open_folder
from osbert.interop.sentence_files import read_sentence_model
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.interop.tuned_files import read_whole

Opening = Callable[[], object]
Attack = Callable[[Path], Opening]
ATTACKS: dict[str, Attack] = {}
HEAVY = {
    *("config_of_objects", "safetensors_with_a_long_header", "index_of_many_shards", "pickle_that_is_compressed"),
    "vocabulary_of_many_lines",
    *("recipe_of_many_tables", "config_of_empty_lists"),
}
"""Those that take seconds to write."""
BOUNDED: set[str] = set()
"""Those that may be read, within bounds."""
SIZES = {
    "vocab_size": 9,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 8,
}


def attack(function: Attack) -> Attack:
    """Add a function to ATTACKS by its name."""
    ATTACKS[function.__name__] = function
    return function


def _written(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@attack
def recipe_with_a_dotted_key(folder: Path) -> Opening:
    return partial(recipe.read, _written(folder / "recipe.toml", ".".join(["a"] * 100_000) + " = 1"))


@attack
def recipe_with_nested_lists(folder: Path) -> Opening:
    return partial(recipe.read, _written(folder / "recipe.toml", "a = " + "[" * 100_000))


@attack
def recipe_of_many_tables(folder: Path) -> Opening:
    return partial(
        recipe.read, _written(folder / "recipe.toml", "".join(f"[t{number}]\n" for number in range(500_000)))
    )


@attack
def config_with_nested_lists(folder: Path) -> Opening:
    return partial(read_object, _written(folder / "config.json", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"))


@attack
def config_of_empty_lists(folder: Path) -> Opening:
    return partial(read_object, _written(folder / "config.json", '{"a": [' + "[]," * 9_000_000 + "[]]}"))


@attack
def config_of_objects(folder: Path) -> Opening:
    return partial(read_object, _written(folder / "config.json", '{"a": [' + '{"":{}},' * 3_000_000 + "[]]}"))


@attack
def config_with_a_long_number(folder: Path) -> Opening:
    return partial(read_object, _written(folder / "config.json", '{"a": ' + "1" * 1_000_000 + "}"))


def _model(folder: Path, **fields: object) -> Opening:
    _written(folder / "config.json", {**SIZES, **fields})
    save_file({"embeddings.word_embeddings.weight": torch.zeros(9, 8)}, folder / "model.safetensors")
    return lambda: open_folder(folder).backbone


@attack
def config_of_many_layers(folder: Path) -> Opening:
    return _model(folder, num_hidden_layers=1_000_000)


@attack
def config_of_many_recurrent_layers(folder: Path) -> Opening:
    return _model(folder, osbert_recurrent=1_000_000)


@attack
def config_of_great_sizes(folder: Path) -> Opening:
    return _model(folder, vocab_size=2**31 - 1, hidden_size=2**30, intermediate_size=2**31 - 1)


@attack
def config_of_a_great_length(folder: Path) -> Opening:
    return _model(folder, model_type="roformer", max_position_embeddings=2**30)


@attack
def safetensors_with_a_long_header(folder: Path) -> Opening:
    header = b'{"a":[' + b"[]," * 3_000_000 + b"[]]}"
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return partial(read_tensors, folder)


@attack
def safetensors_whose_tensors_overlap(folder: Path) -> Opening:
    entry = {"dtype": "F32", "shape": [250_000], "data_offsets": [0, 1_000_000]}
    header = json.dumps({f"tensor{number}": entry for number in range(1000)}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(1_000_000))
    return partial(read_tensors, folder)


@attack
def index_of_many_shards(folder: Path) -> Opening:
    shards = {f"tensor{number}": f"{number}.safetensors" for number in range(300_000)}
    _written(folder / "model.safetensors.index.json", {"weight_map": shards})
    return partial(read_tensors, folder)


@attack
def index_that_leads_outside(folder: Path) -> Opening:
    save_file({"a": torch.zeros(1)}, folder.parent / "other.safetensors")
    _written(folder / "model.safetensors.index.json", {"weight_map": {"a": "../other.safetensors"}})
    return partial(read_tensors, folder)


@attack
def base_of_itself(folder: Path) -> Opening:
    save_file({"a": torch.zeros(1)}, folder / "tuned.safetensors")
    _written(folder / "base.json", {"path": str(folder), "fingerprint": "0"})
    return partial(read_whole, folder)


class _Called:
    """Pickled as a call."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.told = function, arguments

    def __reduce__(self) -> Any:
        return self.told


def _pickled(folder: Path, value: object, *, packed: int = zipfile.ZIP_STORED) -> Opening:
    torch.save({"a": torch.zeros(4)}, folder / "whole.bin")
    with (
        zipfile.ZipFile(folder / "whole.bin") as source,
        zipfile.ZipFile(folder / "pytorch_model.bin", "w", packed) as target,
    ):
        for part in source.infolist():
            content = source.read(part)
            target.writestr(part.filename, pickle.dumps(value, 2) if part.filename.endswith(".pkl") else content)
    (folder / "whole.bin").unlink()
    return partial(read_tensors, folder)


@attack
def pickle_of_a_byte_array(folder: Path) -> Opening:
    return _pickled(folder, {"a": _Called(bytearray, 1 << 30)})


@attack
def pickle_of_a_made_tensor(folder: Path) -> Opening:
    return _pickled(folder, OrderedDict(a=_Called(torch.FloatTensor, 1 << 28)))


def _archive(path: Path, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(f"a/{name}", content)


ARRAY = pickle.dumps({"a": _Called(bytearray, 1 << 30)}, 2)
EMPTY = pickle.dumps({}, 2)


@attack
def pickle_in_capitals_beside_another(folder: Path) -> Opening:
    _archive(folder / "pytorch_model.bin", {"DATA.PKL": ARRAY, "data.pkl": EMPTY, "version": b"3\n"})
    return partial(read_tensors, folder)


@attack
def pickle_in_capitals(folder: Path) -> Opening:
    _archive(folder / "pytorch_model.bin", {"DATA.PKL": ARRAY, "version": b"3\n"})
    return partial(read_tensors, folder)


def _old(content: bytes) -> bytes:
    """Return a file of PyTorch before 1.6 whose state is a pickle."""
    head = b"".join(pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    return head + content + pickle.dumps([], 2)


@attack
def pickle_of_old_before_a_zip(folder: Path) -> Opening:
    path = folder / "pytorch_model.bin"
    _archive(path, {"data.pkl": EMPTY, "version": b"3\n"})
    path.write_bytes(_old(ARRAY) + path.read_bytes())
    return partial(read_tensors, folder)


@attack
def pickle_in_another_list_of_parts(folder: Path) -> Opening:
    """A list of parts before the end record, which zipfile takes, and another where the record says."""
    lists = []
    for name, content in (("bad.bin", ARRAY), ("good.bin", EMPTY.ljust(len(ARRAY), b"\0"))):
        _archive(folder / name, {"data.pkl": content, "version": b"3\n"})
        whole = (folder / name).read_bytes()
        length, start = struct.unpack("<2L", whole[-10:-2])
        lists.append((whole[:start], whole[start : start + length]))
        (folder / name).unlink()
    (bad, bad_list), (good, good_list) = lists
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, len(bad_list), len(bad), 0)
    (folder / "pytorch_model.bin").write_bytes(bad + bad_list + good + good_list + end)
    return partial(read_tensors, folder)


@attack
def pickle_that_names_by_the_stack(folder: Path) -> Opening:
    (folder / "pytorch_model.bin").write_bytes(_old(pickle.dumps({"a": _Called(bytearray, 1 << 30)}, 4)))
    return partial(read_tensors, folder)


@attack
def pickle_of_a_great_storage(folder: Path) -> Opening:
    return _pickled(folder, {"a": _Called(torch.UntypedStorage, 1 << 31)})


@attack
def pickle_in_a_tar(folder: Path) -> Opening:
    with tarfile.open(folder / "pytorch_model.bin", "w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("." * 9, "storages", "tensors", "pickle"):
            part = tarfile.TarInfo(name)
            part.size = len(ARRAY)
            archive.addfile(part, io.BytesIO(ARRAY))
    return partial(read_tensors, folder)


@attack
def pickle_that_is_compressed(folder: Path) -> Opening:
    return _pickled(folder, {"a" * 300_000_000: 1}, packed=zipfile.ZIP_DEFLATED)


@attack
def pickle_whose_tensor_repeats(folder: Path) -> Opening:
    torch.save({"a": torch.zeros(1).expand(1 << 30)}, folder / "pytorch_model.bin")
    return partial(read_tensors, folder)


@attack
def pickle_whose_tensors_are_shared(folder: Path) -> Opening:
    one = torch.zeros(250_000)
    torch.save({f"tensor{number}": one for number in range(1000)}, folder / "pytorch_model.bin")
    return partial(read_tensors, folder)


@attack
def old_pickle_of_a_byte_array(folder: Path) -> Opening:
    with (folder / "pytorch_model.bin").open("wb") as file:
        for value in (0x1950A86A20F9469CFC6C, 1001, {}, {"a": _Called(bytearray, 1 << 30)}, []):
            file.write(pickle.dumps(value, 2))
    return partial(read_tensors, folder)


@attack
def vocabulary_of_many_lines(folder: Path) -> Opening:
    _written(folder / "vocab.txt", "\n" * 60_000_000 + "a")
    return partial(read_any_tokenizer, folder)


@attack
def modules_that_are_nested(folder: Path) -> Opening:
    _written(folder / "modules.json", "[" * 100_000)
    return partial(read_sentence_model, folder)
