"""crc32c, the checksum in TensorFlow's files, in numpy: many runs of bytes in parallel, then their sums combined.

Appending zero bytes is a linear map over GF(2) of the 32 bits of a state. The sum of two adjacent runs is the first
run's sum mapped over the length of the second, XOR the second's sum.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, with reversed bits."""
RUN = 256
"""Bytes in a run; a power of two."""
RUNS = 1 << 14
"""Most runs in parallel; a power of two."""
MASK = 0xA282EAD8
"""Constant of the mask: a checksum of data that contain their own checksum would be weak."""

Words = NDArray[np.uint32]


def checksum(data: bytes | bytearray) -> int:
    """Return the crc32c of bytes (RFC 3720, appendix B.4)."""
    content = np.frombuffer(data, np.uint8)
    state = np.array([0xFFFFFFFF], np.uint32)
    offset = 0
    while len(content) - offset >= RUN:
        # The largest power of two of runs that fits, since sums are combined in pairs.
        runs = min(1 << ((len(content) - offset) // RUN).bit_length() - 1, RUNS)
        end = offset + runs * RUN
        state = _over_zeros(state, runs * RUN) ^ _sum(content[offset:end], runs)
        offset = end
    table, value = _bytes(), int(state[0])
    for byte in content[offset:].tolist():
        value = int(table[(value ^ byte) & 0xFF]) ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def mask_checksum(data: bytes | bytearray) -> int:
    """Return the masked checksum of bytes, as files store it: rotated by 15 bits, plus MASK."""
    value = checksum(data)
    return ((value >> 15 | value << 17) + MASK) & 0xFFFFFFFF


def _sum(content: NDArray[np.uint8], runs: int) -> Words:
    """Return the sum (1,) of `runs` consecutive runs, from a state of 0."""
    # Column r is run r: each step advances all runs by two bytes.
    pairs = np.ascontiguousarray(content.view("<u2").reshape(runs, RUN // 2).T)  # (steps, runs)
    table, sums = _pairs(), np.zeros(runs, np.uint32)
    for step in pairs:
        sums = table[(sums ^ step) & 0xFFFF] ^ (sums >> 16)
    length = RUN
    while len(sums) > 1:
        # Combine neighbours; after each round a sum covers twice the length.
        sums = _over_zeros(sums[0::2], length) ^ sums[1::2]
        length *= 2
    return sums


def _over_zeros(states: Words, length: int) -> Words:
    """Return the states after `length` zero bytes; `length` is a power of two."""
    return _apply_map(states, _images(length.bit_length() - 1))


def _apply_map(states: Words, images: Words) -> Words:
    """Apply a linear map to states, given the image of each bit (32,)."""
    result = np.zeros_like(states)
    for bit in range(32):
        # Multiplied by the bit, 0 or 1: a sum over GF(2) of the images of the set bits.
        result ^= (states >> np.uint32(bit) & 1) * images[bit]
    return result


@lru_cache(maxsize=40)
def _images(doublings: int) -> Words:
    """Return the images (32,) of the single bits under 2 ** `doublings` zero bytes."""
    if doublings:
        # Squaring: the map of 2n zero bytes is the map of n bytes applied to itself.
        half = _images(doublings - 1)
        return _apply_map(half, half)
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return _bytes()[bits & 0xFF] ^ (bits >> 8)


@lru_cache(maxsize=1)
def _bytes() -> Words:
    """Return the table (256,) of the step over one byte, by the low byte of the state."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ POLYNOMIAL, table >> 1).astype(np.uint32)
    return table


@lru_cache(maxsize=1)
def _pairs() -> Words:
    """Return the table (65536,) of the step over two bytes."""
    states, table = np.arange(1 << 16, dtype=np.uint32), _bytes()
    for _ in range(2):
        states = table[states & 0xFF] ^ (states >> 8)
    return states
