"""Compression of attention: each weight is one of at most 256 levels, denser near 0; each layer is deflated.

Most weights are small. So the levels follow square roots up to the weight `bend` and are evenly spaced above it: small
weights stay visible beside large ones, and a large one is known to 0.003. Noise does not deflate: a long text gets
fewer levels near 0, and long noise fewer levels everywhere. The page knows the two edges between which a weight lies,
and shows no more than that.
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
"""Default limit of the size of a page, in megabytes."""
OVERHEAD = 150_000
"""Bytes of a page besides the packed arrays: script, style and the overhead of JSON."""
SCALES = (
    *((180, 256), (127, 256), (90, 256), (64, 256), (45, 256), (32, 256), (23, 256), (16, 256), (11, 256)),
    *((8, 128), (6, 64), (4, 32)),
)
"""Candidate scales (fineness, number of levels), finest first. Each step saves about half a bit per weight."""
SAMPLED = 8
"""The cost of a scale is estimated from every eighth row."""
DEPTH = 255
"""Number of steps of the int8 quantisation of queries and keys, over the range of a head."""
Floats = NDArray[np.float32]


def pack_attention(maps: Floats, norms: Floats, vectors: tuple[Floats, Floats], *, megabytes: float) -> dict[str, Any]:
    """Return attention for a page of at most `megabytes`, as plain values ready for JSON.

    `maps` (L, H + 1, T, T): for each layer the weights of H heads, then the rollout. `norms` (L, H, T). `vectors`:
    queries and keys (L, H, T, K); as many heads keep theirs as fit, those of lowest entropy first. With the coarsest
    scale a page may still exceed the limit.
    """
    room = int(megabytes * 1e6 * 3 / 4) - OVERHEAD  # base64 makes four letters of three bytes
    weight_scale, parts = _fitting(maps, room)
    left = room - sum(map(len, parts))
    scale = float(norms.max(initial=0.0)) or 1.0
    # 16 bits, little-endian, relative to the largest norm.
    norm_levels = np.rint(norms * (65535 / scale)).astype("<u2")
    layers, heads, _, width = vectors[0].shape
    return {
        "layers": layers,
        "heads": heads,
        "width": width,
        "edges": weight_scale.edges(),
        "maps": [base64.b64encode(part).decode() for part in parts],
        "norms": {"scale": scale, "data": base64.b64encode(_deflate(norm_levels)).decode()},
        "vectors": _vectors(maps[:, :heads], vectors, left - 2 * norms.size),
    }


@dataclass(frozen=True)
class WeightScale:
    """Levels of weights in [0, 1]: `fineness` times the square root up to `bend`, evenly spaced above it."""

    fineness: int
    count: int = 256

    @property
    def bend(self) -> float:
        """Return the weight above which levels are evenly spaced, such that the last level is 1 without a jump.

        With n the fineness and r the root of the bend: n r levels follow the root and (1 - r^2) n / 2r are evenly
        spaced; together they are count - 1.
        """
        # The root of r^2 - 2 r ratio + 1 = 0 that is at most 1.
        ratio = (self.count - 1) / self.fineness
        return (ratio - math.sqrt(ratio * ratio - 1)) ** 2

    def levels(self, weights: Floats) -> NDArray[np.uint8]:
        """Return the level of each weight, of the same shape.

        >>> WeightScale(255).levels(np.float32([0, 0.25, 1])), WeightScale(20).levels(np.float32([0, 0.0025, 0.5, 1]))
        (array([  0, 128, 255], dtype=uint8), array([  0,   1, 128, 255], dtype=uint8))
        """
        bend = self.bend
        exact_levels = np.sqrt(weights)
        exact_levels *= self.fineness
        large = weights > bend
        step = 2 * math.sqrt(bend) / self.fineness
        # The step is the derivative of the inverse, 2 sqrt(w) / fineness, at the bend: the scale has no kink there.
        exact_levels[large] = self.fineness * math.sqrt(bend) + (weights[large] - bend) / step
        whole: NDArray[np.uint8] = np.rint(exact_levels, out=exact_levels).astype(np.uint8)
        return whole

    def edges(self) -> list[float]:
        """Return the edges of the levels (count + 1): level v covers the weights from edge v to edge v + 1."""
        bend = self.bend
        # Levels are rounded, so level v covers v - 0.5 to v + 0.5 on the scale.
        between = np.arange(self.count + 1) - 0.5
        roots = (between / self.fineness) ** 2
        step = 2 * math.sqrt(bend) / self.fineness
        even = bend + (between - self.fineness * math.sqrt(bend)) * step
        weight_edges = np.where(between < self.fineness * math.sqrt(bend), roots, even)
        # The outermost edges are the limits of a probability, not half a level beyond them.
        return [0.0, *weight_edges[1:-1].tolist(), 1.0]


def _fitting(maps: Floats, room: int) -> tuple[WeightScale, list[bytes]]:
    """Return the finest scale at which the maps fit into `room` bytes, and the deflated layers."""
    few = np.ascontiguousarray(maps[..., ::SAMPLED, :])
    sampling_factor = maps.size / few.size
    for settings in SCALES:
        scale = WeightScale(*settings)
        # The estimate skips scales that are clearly too fine; the break below tests the exact size.
        if settings != SCALES[-1] and len(_deflate(scale.levels(few))) * sampling_factor > room:
            continue
        parts = [_deflate(scale.levels(layer)) for layer in maps]
        if sum(map(len, parts)) <= room:
            break
    return scale, parts


def _vectors(weights: Floats, vectors: tuple[Floats, Floats], room: int) -> list[dict[str, Any]]:
    """Return the queries and keys of as many heads as fit into `room` bytes, lowest mean entropy first."""
    layers, heads, tokens, width = vectors[0].shape
    count = min(layers * heads, max(0, room) // max(1, 2 * tokens * width))
    # (L, H): mean over the queries of the entropy of their weights.
    entropy = -(weights * np.log(np.maximum(weights, 1e-9))).sum(axis=-1).mean(axis=-1) if count else np.zeros(0)
    chosen = np.sort(np.argsort(entropy, axis=None, kind="stable")[:count])
    head_records = []
    for layer, head in zip(*(column.tolist() for column in np.unravel_index(chosen, (layers, heads)))):
        of_head = np.stack([part[layer, head] for part in vectors])  # (2, T, K)
        largest = np.abs(of_head).max(axis=(1, 2)).tolist()
        # Queries and keys each have their own scale, -largest to largest as -127 to 127.
        scaled = of_head / np.maximum(largest, 1e-9)[:, None, None] * (DEPTH // 2)
        data = base64.b64encode(np.rint(scaled).astype(np.int8).tobytes()).decode()
        head_records.append({"layer": layer, "head": head, "largest": largest, "data": data})
    return head_records


def _deflate(values: Any) -> bytes:
    """Return the raw deflate stream of an array, for a browser's DecompressionStream("deflate-raw").

    The only repeats in attention are runs of one level (Z_RLE). A search for other repeats takes ten times as long and
    makes the output longer.
    """
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS, strategy=zlib.Z_RLE)
    return stream.compress(np.ascontiguousarray(values).tobytes()) + stream.flush()
