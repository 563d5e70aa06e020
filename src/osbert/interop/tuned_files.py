"""Folders with only the tuned tensors, a few megabytes, and a reference to the base model.

tuned.safetensors has the tensors that differ from the base model's, by their Hugging Face names without prefix, and
low-rank changes as "<name>.lora_up" (D, r) and "<name>.lora_down" (r, D). base.json has the path of the base model's
folder and a hash of its tensors. `read_whole` returns the tensors of the whole model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from osbert.errors import UserError
from osbert.files import write_json
from osbert.guarded import read_if_there, read_object
from osbert.interop.files.weight_files import PICKLED, SAFE, fingerprint, read_file, read_tensors, write_tensors
from osbert.interop.huggingface import names
from osbert.interop.huggingface.family import of_type

if TYPE_CHECKING:
    from osbert.models.adapting.tuning import Factors

TUNED = "tuned.safetensors"
BASE = "base.json"
DEEPEST = 8
"""Longest chain of folders, each tuned on the next."""
UP, DOWN = ".lora_up", ".lora_down"


def has_weights(folder: Path) -> bool:
    """Return whether a folder has files with weights for `read_whole`."""
    whole = (SAFE, PICKLED, f"{SAFE}.index.json", f"{PICKLED}.index.json", TUNED)
    return any((folder / name).is_file() for name in whole)


def read_whole(
    folder: Path, config: Mapping[str, Any] | None = None, above: tuple[Path, ...] = ()
) -> dict[str, Tensor]:
    """Return all tensors of a model's folder, by BERT's names, including those of the base of a tuned folder.

    `config`: the content of its config.json, None to read it. `above`: the folders that were tuned on this one. Raises
    UserError as `read_tensors`, and if the base was moved or changed. The hashes of a run's files are not compared:
    `Folder` does that.
    """
    if (folder / SAFE).is_file() or not (folder / TUNED).is_file():
        return _canonical(read_tensors(folder), read_if_there(folder / "config.json") if config is None else config)
    whole = {name: tensor for name, tensor in _base(folder, above).items() if not name.startswith(names.HEAD_PREFIXES)}
    from osbert.models.adapting.tuning import Factors

    tuned_tensors = read_file(folder / TUNED)
    for name, tensor in tuned_tensors.items():
        if name.endswith(UP):
            changed = name.removesuffix(UP)
            try:
                whole[changed] = Factors(up=tensor, down=tuned_tensors[changed + DOWN]).add_to(whole[changed].float())
            except (KeyError, RuntimeError) as error:
                raise UserError(
                    f"{folder / TUNED}: the change of {changed} does not fit the base model ({error}). Copy it again.",
                    code="damaged-file",
                ) from error
        elif not name.endswith(DOWN):
            whole[name] = tensor
    return whole


def keep_tuned(folder: Path, base: Path, changes: Mapping[str, Factors]) -> None:
    """Replace the model in a folder by its differences from the model in `base`.

    `changes`: low-rank changes by the name of the changed tensor.
    """
    before = read_whole(base)  # it was verified when the training began
    known = {names.plain(name): tensor for name, tensor in before.items()}
    config = read_if_there(folder / "config.json")
    whole = {names.plain(name): tensor for name, tensor in _canonical(read_file(folder / SAFE), config).items()}
    tuned = {
        name: tensor
        for name, tensor in whole.items()
        if name not in changes
        and (name.startswith(names.HEAD_PREFIXES) or name not in known or not torch.equal(known[name].float(), tensor))
    }
    for name, factors in changes.items():
        tuned |= {name + UP: factors.up, name + DOWN: factors.down}
    write_tensors(tuned, folder / TUNED)
    write_json(folder / BASE, {"path": str(base.resolve()), "fingerprint": fingerprint(before)})
    (folder / SAFE).unlink()


def _canonical(tensors: dict[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    family = of_type(config.get("model_type"))
    return family.canonical(tensors, config) if family else tensors


def _base(folder: Path, above: tuple[Path, ...]) -> dict[str, Tensor]:
    facts = read_object(folder / BASE)
    if not all(isinstance(facts.get(name), str) for name in ("path", "fingerprint")):
        raise UserError(
            f"{folder / BASE} has no path or no fingerprint of the base model. Copy it again.",
            code="damaged-file",
        )
    path = Path(facts["path"])
    if not path.is_dir():
        raise UserError(
            f"{folder} holds only the tuned weights, and its base model, {path}, does not exist. Put it back, or write "
            f'its new location as "path" in {folder / BASE}.',
            code="missing-file",
        )
    above = (*above, folder.resolve())
    if path.resolve() in above or len(above) > DEEPEST:
        raise UserError(
            f"{folder / BASE} names {path} as its base, which is based on {folder} itself or on more than "
            f"{DEEPEST} folders.",
            code="mismatched-base",
        )
    tensors = read_whole(path, above=above)  # the fingerprint covers more than the hashes would
    if fingerprint(tensors) != facts["fingerprint"]:
        raise UserError(
            f"{path} does not hold the model that {folder} was tuned on. Put that model back, or write its new "
            f'location as "path" in {folder / BASE}.',
            code="mismatched-base",
        )
    return {names.plain(name): tensor for name, tensor in tensors.items()}
