"""Attention as few bytes: each weight is one of 256 levels, close together near 0, and a layer is deflated.

Small weights are the many and large ones the few. So levels follow square roots up to some weight and are evenly spaced
above it: pictures show small weights beside large ones, and a large one is known to 0.003. Noise does not deflate: of a
long text there are fewer levels near 0, and of long noise fewer everywhere. A page knows between which two edges a
weight is, and says no more of it.
"""

from __future__ import annotations

import base64
import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEGABYTES = 10.0
"""Most megabytes of a page."""
OVERHEAD = 150_000
"""Bytes of a page beside what is packed: its script and style, and what JSON adds."""
SCALES = (
    *((180, 256), (127, 256), (90, 256), (64, 256), (45, 256), (32, 256), (23, 256), (16, 256), (11, 256)),
    *((8, 128), (6, 64), (4, 32)),
)
"""Fineness and levels of the scales that are tried, the finest first: each costs about half a bit less."""
SAMPLED = 8
"""One row in so many is deflated to find out what a scale costs."""
DEPTH = 255
"""Steps of a number of a query or a key from the smallest to the largest of its head."""
Floats = NDArray[np.float32]


def packed(maps: Floats, norms: Floats, vectors: tuple[Floats, Floats], *, megabytes: float) -> dict[str, Any]:
    """Return attention for a page of at most so many megabytes, as plain values ready for JSON.

    `maps` (L, H + 1, T, T): of each layer the weights of H heads, and what is rolled out. `norms` (L, H, T); `vectors`:
    queries and keys (L, H, T, K), of which those of as many heads are kept as there is room for, the heads of the least
    entropy first. At the coarsest scale a page may yet be larger.
    """
    room = int(megabytes * 1e6 * 3 / 4) - OVERHEAD  # base64 makes four letters of three bytes
    weight_scale, parts = _fitting(maps, room)
    left = room - sum(map(len, parts))
    scale = float(norms.max(initial=0.0)) or 1.0
    kept = np.rint(norms * (65535 / scale)).astype("<u2")
    layers, heads, _, width = vectors[0].shape
    return {
        "layers": layers,
        "heads": heads,
        "width": width,
        "edges": weight_scale.edges(),
        "maps": [base64.b64encode(part).decode() for part in parts],
        "norms": {"scale": scale, "data": base64.b64encode(_deflated(kept)).decode()},
        "vectors": _vectors(maps[:, :heads], vectors, left - 2 * norms.size),
    }


@dataclass(frozen=True)
class WeightScale:
    """Levels of weights from 0 to 1: `fineness` times the root up to the weight `bend`, and evenly spaced above it."""

    fineness: int
    count: int = 256

    @property
    def bend(self) -> float:
        """Return where the levels begin to be evenly spaced: where all that are left reach 1 without a jump.

        With r its root, the root's levels are n r, the others (1 - r^2) n / 2r, and both together count - 1.
        """
        ratio = (self.count - 1) / self.fineness
        return (ratio - math.sqrt(ratio * ratio - 1)) ** 2

    def levels(self, weights: Floats) -> NDArray[np.uint8]:
        """Return the level of each weight.

        >>> WeightScale(255).levels(np.float32([0, 0.25, 1])), WeightScale(20).levels(np.float32([0, 0.0025, 0.5, 1]))
        (array([  0, 128, 255], dtype=uint8), array([  0,   1, 128, 255], dtype=uint8))
        """
        bend = self.bend
        found = np.sqrt(weights)
        found *= self.fineness
        large = weights > bend
        step = 2 * math.sqrt(bend) / self.fineness
        found[large] = self.fineness * math.sqrt(bend) + (weights[large] - bend) / step
        whole: NDArray[np.uint8] = np.rint(found, out=found).astype(np.uint8)
        return whole

    def edges(self) -> list[float]:
        """Return between which weights each level is: level v from number v to number v + 1 of these."""
        bend = self.bend
        between = np.arange(self.count + 1) - 0.5
        roots = (between / self.fineness) ** 2
        step = 2 * math.sqrt(bend) / self.fineness
        even = bend + (between - self.fineness * math.sqrt(bend)) * step
        found = np.where(between < self.fineness * math.sqrt(bend), roots, even)
        return [0.0, *found[1:-1].tolist(), 1.0]


def _fitting(maps: Floats, room: int) -> tuple[WeightScale, list[bytes]]:
    """Return the finest scale at which the maps fit into so many bytes, and the layers at it, deflated."""
    few = np.ascontiguousarray(maps[..., ::SAMPLED, :])
    share = maps.size / few.size
    for one in SCALES:
        scale = WeightScale(*one)
        if one != SCALES[-1] and len(_deflated(scale.levels(few))) * share > room:
            continue
        parts = [_deflated(scale.levels(layer)) for layer in maps]
        if sum(map(len, parts)) <= room:
            break
    return scale, parts


def _vectors(weights: Floats, vectors: tuple[Floats, Floats], room: int) -> list[dict[str, Any]]:
    """Return queries and keys of as many heads as fit into so many bytes, those of the least mean entropy first."""
    layers, heads, tokens, width = vectors[0].shape
    count = min(layers * heads, max(0, room) // max(1, 2 * tokens * width))
    entropy = -(weights * np.log(np.maximum(weights, 1e-9))).sum(axis=-1).mean(axis=-1) if count else np.zeros(0)
    chosen = np.sort(np.argsort(entropy, axis=None, kind="stable")[:count])
    found = []
    for layer, head in zip(*(column.tolist() for column in np.unravel_index(chosen, (layers, heads)))):
        of_head = np.stack([part[layer, head] for part in vectors])  # (2, T, K)
        largest = np.abs(of_head).max(axis=(1, 2)).tolist()
        scaled = of_head / np.maximum(largest, 1e-9)[:, None, None] * (DEPTH // 2)
        data = base64.b64encode(np.rint(scaled).astype(np.int8).tobytes()).decode()
        found.append({"layer": layer, "head": head, "largest": largest, "data": data})
    return found


def _deflated(values: Any) -> bytes:
    """Return an array's bytes as a browser's DecompressionStream("deflate-raw") reads them.

    Runs of one level are all that repeats in attention: a search for other repeats takes ten times as long, and its
    code makes the rest longer.
    """
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS, strategy=zlib.Z_RLE)
    return stream.compress(np.ascontiguousarray(values).tobytes()) + stream.flush()
