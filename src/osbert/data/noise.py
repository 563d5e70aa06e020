"""Random numbers for many examples at once, each a pure function of a key, the example's place and its own number.

So an example's noise does not depend on the examples beside it, on those before it, or on how many are made at a time.
The numbers are SplitMix64's (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"): a counter
in steps of the golden ratio, mixed by Stafford's variant 13.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from osbert.data.ragged import Places

Words = NDArray[np.uint64]

_STEP, _FORK = np.uint64(0x9E3779B97F4A7C15), 0xD1342543DE82EF95
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Noise:
    """Endless random numbers for each of B examples, by number: (rows, numbers) asks for number k of example row.

    `seeds` (B,): what an example's numbers are functions of.
    """

    def __init__(self, seeds: Words) -> None:
        """Take the seeds, which should look random themselves."""
        self.seeds = seeds

    @classmethod
    def at(cls, key: int, places: Places) -> Noise:
        """Return the noise of the examples at `places` (B,) of a stream that is named by a random key below 2**64."""
        return cls(_mixed((places.astype(np.uint64) + np.uint64(1)) * _STEP + np.uint64(key)))

    @classmethod
    def drawn(cls, rng: np.random.Generator, count: int) -> Noise:
        """Return noise for `count` examples that are at no place in a stream."""
        return cls(rng.integers(2**64, size=count, dtype=np.uint64))

    @classmethod
    def joined(cls, parts: Sequence[Noise]) -> Noise:
        """Return the noise of the examples of several, in their order."""
        return cls(np.concatenate([part.seeds for part in parts]))

    def stream(self, number: int) -> Noise:
        """Return other noise for the same examples: each number from 0 on names a stream of its own."""
        return Noise(_mixed(self.seeds + np.uint64((number + 1) * _FORK % 2**64)))

    def words(self, rows: Places, numbers: Places) -> Words:
        """Return 64 random bits (M,) for each of M (row, number)."""
        return _mixed((numbers.astype(np.uint64) + np.uint64(1)) * _STEP + self.seeds[rows])

    def uniform(self, rows: Places, numbers: Places) -> NDArray[np.float64]:
        """Return numbers (M,) from 0 to below 1."""
        return (self.words(rows, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bounds: int | Places, rows: Places, numbers: Places) -> Places:
        """Return whole numbers (M,) from 0 to below `bounds`, one for all or (M,), each below 2**32."""
        wide = (self.words(rows, numbers) >> np.uint64(32)) * np.asarray(bounds).astype(np.uint64)
        return (wide >> np.uint64(32)).view(np.int64)

    def generator(self, row: int) -> np.random.Generator:
        """Return a generator for one example, for those who draw otherwise."""
        return np.random.default_rng(int(self.seeds[row]))


def _mixed(words: Words) -> Words:
    """Return the words, which are overwritten, mixed so that each bit depends on all."""
    words ^= words >> np.uint64(30)
    words *= _FIRST
    words ^= words >> np.uint64(27)
    words *= _SECOND
    words ^= words >> np.uint64(31)
    return words
