"""A process group of one process, NCCL's on a GPU: replicated and sharded weights learn as those that are alone do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
SCRIPT = """
import sys
from pathlib import Path
from torch import distributed
sys.path.insert(0, sys.argv[1])
from test_cuda import make_trainer
from osbert.training import trainer as module
from osbert.training.distributed import Parallel
from osbert.training.parallel import Replication
from osbert.training.sharding import Sharding

device, backend = sys.argv[2:]
distributed.init_process_group(backend, rank=0, world_size=1, store=distributed.HashStore())
spreads = {
    "alone": lambda learner, *_: Parallel(),
    "ddp": lambda learner, *_: Replication(learner.parameters()),
    "fsdp": lambda learner, group, kind, place: Sharding(learner, group, place),
}
found = {}
for name, spread in spreads.items():
    module.spread = spread
    trainer = make_trainer(Path("unused"), sizes=device, steps=4, device=device, precision="fp32")
    found[name] = [(step.losses, step.gradient_norm) for step in trainer.run()]
distributed.destroy_process_group()
assert found["ddp"] == found["alone"], found
for one, two in zip(found["fsdp"], found["alone"], strict=True):
    assert all(abs(one[0][key] - two[0][key]) < 1e-4 * two[0][key] for key in two[0]), found
    assert abs(one[1] - two[1]) < 1e-3 * two[1], found
print("learnt", len(found["alone"]))
"""


@pytest.mark.parametrize(
    ("device", "backend"), [("cpu", "gloo"), pytest.param("cuda", "cpu:gloo,cuda:nccl", marks=needs_gpu)]
)
def test_a_group_of_one_learns_as_one_alone_does(tmp_path: Path, device: str, backend: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), device, backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "learnt 4\n"
