"""PyTorch files: those of weights are read, in the old form too; what else a pickle can name is refused."""

from __future__ import annotations

from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from osbert.interop.files.weight_files import read_file
from refusals import refusal


@pytest.mark.parametrize("zipped", [True, False])
def test_weights_are_read_whatever_they_are_kept_in(zipped: bool, tmp_path: Path) -> None:
    tied = torch.randn(5, 4)
    state: dict[str, Any] = OrderedDict(
        tied=tied,
        again=tied,
        view=tied[1:3],
        turned=torch.randn(3, 2).t(),
        parameter=torch.nn.Parameter(torch.randn(2)),
        half=torch.randn(3).half(),
        bfloat=torch.randn(3).bfloat16(),
        whole=torch.arange(6),
        flag=torch.tensor([True]),
        empty=torch.empty(0, 4),
        number=torch.tensor(3.0),
    )
    torch.save(state, tmp_path / "a.bin", _use_new_zipfile_serialization=zipped)
    found = read_file(tmp_path / "a.bin")
    assert list(found) == list(state)
    assert all(torch.equal(found[name], state[name]) and found[name].dtype == state[name].dtype for name in state)
    model = torch.nn.LayerNorm(4)
    torch.save(model.state_dict(), tmp_path / "b.bin", _use_new_zipfile_serialization=zipped)
    assert set(read_file(tmp_path / "b.bin")) == {"weight", "bias"}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("value", [Counter("ab"), {1, 2}, torch.device("cpu"), torch.eye(3).to_sparse(), 1j])
def test_what_is_not_of_weights_is_refused(value: object, zipped: bool, tmp_path: Path) -> None:
    torch.save({"a": value}, tmp_path / "a.bin", _use_new_zipfile_serialization=zipped)
    with refusal("damaged-file", "a.bin"):
        read_file(tmp_path / "a.bin")
