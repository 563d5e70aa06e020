"""crc32c, the checksum in TensorFlow's files, in numpy: many short runs of bytes side by side, their sums then joined.

A sum over zero bytes is a linear map of the 32 bits before it, so the sums of neighbouring runs join by one such map.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78
"""Castagnoli's, its bits reversed."""
RUN = 256
"""Bytes of a run; a power of two."""
RUNS = 1 << 14
"""Most runs side by side."""
MASK = 0xA282EAD8
"""What is added to a sum that stands among the bytes it is of: then sums of sums are as good."""

Words = NDArray[np.uint32]


def checksum(data: bytes | bytearray) -> int:
    """Return the crc32c of bytes (RFC 3720, appendix B.4)."""
    content = np.frombuffer(data, np.uint8)
    state = np.array([0xFFFFFFFF], np.uint32)
    place = 0
    while len(content) - place >= RUN:
        runs = min(1 << ((len(content) - place) // RUN).bit_length() - 1, RUNS)
        end = place + runs * RUN
        state = _over_zeros(state, runs * RUN) ^ _sum(content[place:end], runs)
        place = end
    table, value = _bytes(), int(state[0])
    for byte in content[place:].tolist():
        value = int(table[(value ^ byte) & 0xFF]) ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def masked(data: bytes | bytearray) -> int:
    """Return the checksum of bytes as it is written into files: rotated, and with a constant added."""
    value = checksum(data)
    return ((value >> 15 | value << 17) + MASK) & 0xFFFFFFFF


def _sum(content: NDArray[np.uint8], runs: int) -> Words:
    """Return the sum (1,) of `runs` runs that stand one behind the other, from a state of 0."""
    pairs = np.ascontiguousarray(content.view("<u2").reshape(runs, RUN // 2).T)  # (steps, runs)
    table, sums = _pairs(), np.zeros(runs, np.uint32)
    for step in pairs:
        sums = table[(sums ^ step) & 0xFFFF] ^ (sums >> 16)
    length = RUN
    while len(sums) > 1:
        sums = _over_zeros(sums[0::2], length) ^ sums[1::2]
        length *= 2
    return sums


def _over_zeros(states: Words, length: int) -> Words:
    """Return states after `length` more bytes that are 0; a power of two."""
    return _mapped(states, _images(length.bit_length() - 1))


def _mapped(states: Words, images: Words) -> Words:
    """Return a linear map of states, given its image of each bit (32,)."""
    result = np.zeros_like(states)
    for bit in range(32):
        result ^= (states >> np.uint32(bit) & 1) * images[bit]
    return result


@lru_cache(maxsize=40)
def _images(doublings: int) -> Words:
    """Return the images of the 32 bits under 2 ** `doublings` zero bytes."""
    if doublings:
        half = _images(doublings - 1)
        return _mapped(half, half)
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return _bytes()[bits & 0xFF] ^ (bits >> 8)


@lru_cache(maxsize=1)
def _bytes() -> Words:
    """Return what each low byte of a state becomes in the step over one byte (256,)."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ POLYNOMIAL, table >> 1).astype(np.uint32)
    return table


@lru_cache(maxsize=1)
def _pairs() -> Words:
    """Return the same for two bytes at once (65536,)."""
    states, table = np.arange(1 << 16, dtype=np.uint32), _bytes()
    for _ in range(2):
        states = table[states & 0xFF] ^ (states >> 8)
    return states
