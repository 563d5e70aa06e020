"""Random numbers for many examples at once, each a pure function of a key, the example's index and its own number.

So an example's noise does not depend on the other examples or on how many are made together.
The numbers are SplitMix64's (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"): a counter
in steps of the golden ratio, mixed by Stafford's variant 13.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.data.example import Places

Words = NDArray[np.uint64]

# The step and the multipliers of splitmix64 (Steele, Lea and Flood 2014); forks have another odd multiplier, so that
# their numbers do not repeat those of the generator that they come from.
_STEP, _FORK = np.uint64(0x9E3779B97F4A7C15), 0xD1342543DE82EF95
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Noise:
    """Counter-based random numbers for each of B examples, addressed by (row, number).

    `seeds` (B,): one 64-bit seed per example.
    """

    def __init__(self, seeds: Words) -> None:
        """Use `seeds`, which should be random bits: seeds a multiple of _STEP apart give the same numbers, shifted."""
        self.seeds = seeds

    @classmethod
    def at(cls, key: int, indices: Places) -> Noise:
        """Return the noise of the examples `indices` (B,) in the stream of a random key below 2**64."""
        return cls(_mix_bits((indices.astype(np.uint64) + np.uint64(1)) * _STEP + np.uint64(key)))

    @classmethod
    def from_rng(cls, rng: np.random.Generator, count: int) -> Noise:
        """Return noise for `count` examples that belong to no stream, with seeds from `rng`."""
        return cls(rng.integers(2**64, size=count, dtype=np.uint64))

    @classmethod
    def concatenate(cls, parts: Sequence[Noise]) -> Noise:
        """Concatenate the noise of several groups of examples."""
        return cls(np.concatenate([part.seeds for part in parts]))

    def stream(self, number: int) -> Noise:
        """Return independent noise for the same examples; each number >= 0 is another stream."""
        return Noise(_mix_bits(self.seeds + np.uint64((number + 1) * _FORK % 2**64)))

    def words(self, rows: Places, numbers: Places) -> Words:
        """Return 64 random bits for each of M pairs (row, number), (M,) uint64."""
        return _mix_bits((numbers.astype(np.uint64) + np.uint64(1)) * _STEP + self.seeds[rows])

    def uniform(self, rows: Places, numbers: Places) -> NDArray[np.float64]:
        """Return uniform random numbers (M,) in [0, 1)."""
        # The top 53 bits, as many as a float64 has, times 2**-53.
        return (self.words(rows, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bounds: int | Places, rows: Places, numbers: Places) -> Places:
        """Return uniform random integers (M,) in [0, bounds); `bounds` is a scalar or (M,), below 2**32."""
        # Multiply and shift (Lemire 2019) instead of modulo: 32 random bits times the bound, then the upper half.
        wide = (self.words(rows, numbers) >> np.uint64(32)) * np.asarray(bounds).astype(np.uint64)
        return (wide >> np.uint64(32)).view(np.int64)

    def generator(self, row: int) -> np.random.Generator:
        """Return a numpy generator for one example, for objectives that are not vectorised."""
        return np.random.default_rng(int(self.seeds[row]))


def _mix_bits(words: Words) -> Words:
    """Mix the bits of `words` in place, so that each depends on all others, and return them."""
    # Stafford's variant 13; products wrap around modulo 2**64.
    words ^= words >> np.uint64(30)
    words *= _FIRST
    words ^= words >> np.uint64(27)
    words *= _SECOND
    words ^= words >> np.uint64(31)
    return words
