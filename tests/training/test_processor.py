"""What "auto" means, and devices that are not there."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from osbert.training.processor import choose, compile_layers, has_bf16
from refusals import refusal


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
    with refusal("unavailable-device"):
        choose(device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_called_that() -> None:
    with refusal("unavailable-device", "cuda"):
        choose("cuda")


def test_products_are_made_in_the_precision_chosen() -> None:
    for precision, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with choose("cpu", precision).autocast():
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == kind


@pytest.mark.parametrize(
    ("wanted", "device", "compiled"),
    [("yes", "cpu", True), ("no", "cuda", False), ("auto", "cuda", True), ("auto", "cpu", False)],
)
def test_layers_are_compiled_on_a_gpu_or_when_so_wished(wanted, device, compiled, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda layer, **options: asked.append((layer, options)))
    layers = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.ReLU()])
    compile_layers(torch.nn.Sequential(torch.nn.Tanh(), layers), wanted, torch.device(device))
    assert asked == ([(layer, {"dynamic": True}) for layer in layers] if compiled else [])


@torch.no_grad()
def test_a_compiled_block_gives_the_same() -> None:
    """Traced, but not turned into machine code, which takes a minute."""
    from osbert.models.architecture import Architecture
    from osbert.models.transformer.layout import Layout

    torch.manual_seed(0)
    block = Architecture(layers=1, width=16, heads=2, vocabulary=9, length=8).build().blocks[0]
    read = torch.tensor([0, 3])
    for count in (2, 3):
        bounds = torch.arange(count + 1, dtype=torch.int32) * 4
        layout = Layout(lengths=(4,) * count, bounds=bounds, positions=torch.arange(4).repeat(count))
        layout = layout.reading(read, (2, *(0,) * (count - 1)))
        hidden = torch.randn(4 * count, 16)
        wanted = block.eval()(hidden, layout)
        if count == 2:
            block.compile(dynamic=True, backend="eager")
        torch.testing.assert_close(block(hidden, layout), wanted)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_memory_of_freed_tensors_is_kept() -> None:
    """In a process of its own, for the setting lasts: taking the same block again costs no new pages."""
    code = """
import resource, torch
from osbert.training.processor import keep_memory

assert keep_memory()
faults = []
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(megabytes * 2**18) for megabytes in (40, 70, 100)]
    del blocks
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(faults[0], min(faults))
"""
    first, last = map(int, subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
    assert last < first / 10
