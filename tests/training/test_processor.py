"""What "auto" means, and devices that are not there."""

from __future__ import annotations

import pytest
import torch

from osbert.errors import UserError
from osbert.training.processor import choose, has_bf16


def test_auto_is_bf16_only_where_the_processor_has_it(monkeypatch) -> None:
    for has in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda has=has: has)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert has_bf16(torch.device("cpu")) is has
        assert str(choose("cpu")) == ("cpu bf16" if has else "cpu fp32")
        assert str(choose("cpu", "fp32")) == "cpu fp32"
        assert str(choose("cpu", "bf16")) == "cpu bf16"


def test_auto_is_a_gpu_where_there_is_one() -> None:
    assert choose().device.type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("device", ["abacus", "cuda:99", ""])
def test_no_such_device(device) -> None:
    with pytest.raises(UserError, match="cannot be used"):
        choose(device)


def test_products_are_made_in_the_precision_chosen() -> None:
    for precision, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with choose("cpu", precision).autocast():
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == kind
