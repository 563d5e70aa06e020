"""Tensors of a checkpoint: the memory of streams is put together from the processes that know them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from osbert.models.memory import Memory, Past
from osbert.training import tensors
from osbert.training.distributed import Group

STREAMS = 5


class Remembering(nn.Module):
    """What has a memory, and nothing else."""

    def __init__(self, columns: range) -> None:
        super().__init__()
        self.memory = Memory(streams=STREAMS, layers=1, length=2, width=3)
        for turn in range(3):
            records = torch.tensor([turn * STREAMS + column for column in columns])
            rows = records.repeat_interleave(2)[:, None].expand(-1, 3).float()
            self.memory.keep(records, Past(layers=[rows], lengths=(2,) * len(records), most=2))


@dataclass(frozen=True)
class Pair(Group):
    """A group of two processes, of which this one knows what both say."""

    words: tuple[dict[str, torch.Tensor], ...] = ()

    def gather(self, value: object, about: str) -> list[object]:
        return [value, *self.words] if self.rank == 0 else [*self.words, value]


def test_each_process_gives_the_memory_of_its_own_streams() -> None:
    parts = [Remembering(range(rank, STREAMS, 2)) for rank in range(2)]
    buffers = [dict(part.named_buffers()) for part in parts]
    of_other = {name: buffer[:, 1::2] for name, buffer in buffers[1].items()}
    found = tensors.memory(parts[0], Pair(rank=0, size=2, words=(of_other,)))
    expected = dict(Remembering(range(STREAMS)).named_buffers())
    assert found.keys() == expected.keys()
    for name, buffer in expected.items():
        assert torch.equal(found[name], buffer), name
    assert tensors.memory(parts[0], Group()) == {}
