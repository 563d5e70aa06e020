"""Feature-based use: a frozen encoder's layers, cached on disk, and a bidirectional LSTM on them (section 5.3).

`Features` lists the choices of layers; "mix" is ELMo's scalar mix (Peters et al. 2018, section 3.2): gamma *
sum_j softmax(s)_j h_j. The encoder is frozen, so the states of a sequence are computed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from osbert.data.batch import Batch, micro_batches
from osbert.data.example import Example, begins
from osbert.files import replace_file
from osbert.models.contract import Backbone, Head, Sizes, States
from osbert.models.forms import Features, feature_layers, pool_states
from osbert.models.transformer.added_layers import Recurrent

WIDTH = 768
"""Width of the bidirectional LSTM, half of it in each direction."""
TOKENS = 4096
"""Most tokens that are encoded at a time."""
VECTORS = "features-*.f16"
"""Pattern of the names of cache files."""


class FrozenEncoder:
    """States of some layers of a frozen encoder, concatenated (N, layers * D), or what the LSTM makes of them (N, 768).

    They are rounded to float16 even if not cached, so that training and prediction see the same numbers. The pooled
    state is the maximum over the tokens of a sequence (Conneau et al. 2017, section 3.2.2).
    """

    def __init__(self, backbone: Backbone, layers: range, above: FeatureLSTM | None = None) -> None:
        """Read `layers` of `backbone`, which is frozen, and the states of `above` on them if given."""
        self.backbone = backbone.requires_grad_(False)
        self.layers = layers
        self.above = above
        self.offsets: dict[bytes, int] = {}
        self.vectors: NDArray[np.float16] | None = None

    def __call__(self, batch: Batch) -> States:
        """Return the states of a batch: from disk if all its sequences are cached, else from the encoder."""
        columns = (column.cpu().split(list(batch.lengths)) for column in (batch.ids, batch.segments))
        offsets = [self.offsets.get(_key(*(column.numpy() for column in pair))) for pair in zip(*columns)]
        if self.vectors is None or any(offset is None for offset in offsets):
            states = self._encode(batch)
        else:
            rows = [self.vectors[offset : offset + n] for offset, n in zip(offsets, batch.lengths)]  # type: ignore[operator]
            states = torch.from_numpy(np.concatenate(rows)).to(batch.ids.device)
        hidden = states.float()  # (N, layers * D)
        hidden = hidden if self.above is None else self.above(hidden, batch)
        pooled = torch.stack(pool_states(hidden, batch, "max", batch.starts))
        return States(hidden=hidden, summary=hidden[batch.starts], pooled=pooled)

    def keep(self, folder: Path, examples: Iterable[Example]) -> Path:
        """Compute the vectors of `examples` and write them to a file in `folder`, unless it exists and is undamaged.

        Afterwards they are read through a memory map. Raises OSError if the disk is full.
        """
        # One entry per distinct sequence, in the order of the examples.
        ordered = list({_key(example.ids, example.segments): example for example in examples}.items())
        path = folder / VECTORS.replace("*", self._fingerprint([key for key, _ in ordered]))
        if not _is_whole(path):
            folder.mkdir(parents=True, exist_ok=True)
            # By ordinary writes: writing into a memory map on a full disk would kill the process (SIGBUS).
            replace_file(path, lambda aside: self._write(aside, [example for _, example in ordered]))
        lengths = np.array([len(example) for _, example in ordered], np.int64)
        width = len(self.layers) * self.backbone.architecture.width
        self.vectors = np.memmap(path, np.float16, mode="r", shape=(int(lengths.sum()), width))
        self.offsets = dict(zip((key for key, _ in ordered), begins(lengths).tolist()))
        return path

    def _write(self, path: Path, examples: Sequence[Example]) -> None:
        device = next(self.backbone.parameters()).device
        digest = hashlib.blake2b()
        with path.open("wb") as file:
            for first in range(0, len(examples), 256):  # their vectors fit in memory together
                part = examples[first : first + 256]
                numbered = [replace(example, record=index, targets={}) for index, example in enumerate(part)]
                states: list[Tensor] = [torch.empty(0, dtype=torch.float16)] * len(part)
                for batch in micro_batches(numbered, TOKENS):
                    rows = self._encode(batch.to(device)).cpu().split(list(batch.lengths))
                    for index, row in zip(batch.records.tolist(), rows, strict=True):
                        states[index] = row
                content = torch.cat(states).numpy().tobytes()
                digest.update(content)
                file.write(content)
            file.write(digest.digest())

    def _encode(self, batch: Batch) -> Tensor:
        """Return the states of the layers (N, layers * D) in float16, computed in float32 without dropout."""
        training = self.backbone.training
        self.backbone.eval()
        with torch.no_grad(), torch.autocast(batch.ids.device.type, enabled=False):
            states = [state for number, state in enumerate(self.backbone.layers(batch)) if number in self.layers]
        self.backbone.train(training)
        return torch.cat(states, dim=1).half()

    def _fingerprint(self, keys: Sequence[bytes]) -> str:
        """Return a hash of the sequences, the layers and the encoder's weights, without its pooler."""
        digest = hashlib.blake2b(repr(self.layers).encode(), digest_size=8)
        for key in keys:
            digest.update(key)
        for name, weight in self.backbone.state_dict().items():
            if not name.startswith("pooler."):  # it is not read, and a new pooler depends on the seed
                digest.update(weight.detach().cpu().contiguous().numpy())
        return digest.hexdigest()


class FeatureLSTM(nn.Module):
    """Layers of a frozen encoder (N, layers * D) -> (N, 768): combined, then a two-layer bidirectional LSTM."""

    def __init__(self, sizes: Sizes, features: Features) -> None:
        """Make the layers for an encoder of these sizes; sums start with equal weights."""
        super().__init__()
        self.count = len(feature_layers(features, sizes.layers))
        self.concatenated = features in ("concat-last-four", "concat-ends")
        learnt = self.count > 1 and not self.concatenated
        self.weights = nn.Parameter(torch.zeros(self.count)) if learnt else None
        self.gamma = nn.Parameter(torch.ones(())) if features == "mix" else None
        inputs = sizes.width * (self.count if self.concatenated else 1)
        self.recurrent = Recurrent(WIDTH, 2, inputs=inputs, dropout=sizes.dropout)

    def forward(self, layers: Tensor, batch: Batch) -> Tensor:
        """Return the LSTM's states (N, 768) for the layers of a batch's tokens."""
        return self.recurrent(self.combine_layers(layers), batch)

    def combine_layers(self, layers: Tensor) -> Tensor:
        """Return the features (N, inputs) of `layers` (N, layers * D)."""
        if self.weights is not None:
            stacked = layers.unflatten(1, (self.count, -1))  # (N, layers, D)
            layers = torch.einsum("nld,l->nd", stacked, self.weights.softmax(0))
        return layers if self.gamma is None else self.gamma * layers


class FeatureBackbone(Backbone):
    """What a head on features stands on: states as wide as the LSTM's, which has the dropout."""

    def __init__(self, sizes: Sizes) -> None:
        """Have the sizes of the LSTM's states; `sizes` are the encoder's."""
        super().__init__()
        self.architecture = Sizes()
        self.architecture.width, self.architecture.dropout = WIDTH, 0.0
        self.architecture.deviation = sizes.deviation


def stand_on_features(backbone: Backbone, features: Features, make: Callable[[Backbone], Head]) -> Head:
    """Return the head that `make` makes for a backbone, on `features` of `backbone`, which is frozen."""
    sizes = backbone.architecture
    head = make(FeatureBackbone(sizes))
    above = head.features = FeatureLSTM(sizes, features)
    head.frozen = FrozenEncoder(backbone, feature_layers(features, sizes.layers), above)
    head.sparse = False
    return head


def _is_whole(path: Path) -> bool:
    """Return whether a cache file exists and its last 64 bytes are the hash of the rest."""
    if not path.is_file():
        return False
    digest = hashlib.blake2b()
    left = path.stat().st_size - digest.digest_size
    with path.open("rb") as file:
        while content := file.read(min(max(left, 0), 2**20)):
            digest.update(content)
            left -= len(content)
        return file.read() == digest.digest()


def _key(ids: NDArray[np.integer], segments: NDArray[np.integer]) -> bytes:
    return hashlib.blake2b(ids.astype("<i4").tobytes() + segments.astype(np.int8).tobytes(), digest_size=16).digest()
