"""Noise: a pure function of key, place and number, uniform, and independent where keys, places or numbers differ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.noise import Noise

COUNT = 40_000
KEY = 0x1234_5678_9ABC_DEF0


def splitmix(state: int, number: int) -> int:
    """Return word `number` of the published generator (Steele et al. 2014; Vigna's C code), in plain integers."""
    word = (state + (number + 1) * 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


@given(key=st.integers(0, 2**64 - 1), place=st.integers(0, 2**40), number=st.integers(0, 2**40))
def test_words_are_the_published_generators(key: int, place: int, number: int) -> None:
    noise = Noise.at(key, np.array([place]))
    assert noise.seeds.tolist() == [splitmix(key, place)]
    assert noise.words(np.array([0]), np.array([number])).tolist() == [splitmix(splitmix(key, place), number)]


def test_the_first_words_of_the_published_generator() -> None:
    """From seed 0, as listed with the C code."""
    words = Noise(np.zeros(1, np.uint64)).words(np.zeros(3, np.int64), np.arange(3))
    assert [f"{word:016x}" for word in words.tolist()] == ["e220a8397b1dcdaf", "6e789e6aa1b965f4", "06c45d188009454f"]


@given(places=st.lists(st.integers(0, 10**6), min_size=1, max_size=9), stream=st.integers(0, 3), data=st.data())
def test_an_examples_noise_does_not_depend_on_those_beside_it(
    places: list[int], stream: int, data: st.DataObject
) -> None:
    row = data.draw(st.integers(0, len(places) - 1))
    together, alone = (Noise.at(KEY, np.array(some)) for some in (places, [places[row]]))
    numbers = np.arange(5)
    here, there = np.full(5, row), np.zeros(5, np.int64)
    assert together.generator(row).random() == alone.generator(0).random()
    together, alone = together.stream(stream), alone.stream(stream)
    assert together.words(here, numbers).tolist() == alone.words(there, numbers).tolist()
    joined = Noise.concatenate([alone, together])
    assert joined.words(here + 1, numbers).tolist() == alone.words(there, numbers).tolist()


def by_place(noise: Noise) -> np.ndarray:
    return noise.uniform(np.arange(COUNT), np.zeros(COUNT, np.int64))


def by_number(noise: Noise) -> np.ndarray:
    return noise.uniform(np.zeros(COUNT, np.int64), np.arange(COUNT))


WAYS = pytest.mark.parametrize("way", [by_place, by_number])


@WAYS
@pytest.mark.parametrize("key", [0, 1, KEY])
def test_neighbours_are_uniform_and_independent(way: Callable[[Noise], np.ndarray], key: int) -> None:
    found = way(Noise.at(key, np.arange(COUNT)))
    assert found.min() >= 0 and found.max() < 1
    assert_even(found)
    for step in (1, 2, 3, 64):
        assert_unrelated(found[:-step], found[step:])


@WAYS
def test_other_keys_streams_and_numbers_are_other_noise(way: Callable[[Noise], np.ndarray]) -> None:
    noise = Noise.at(KEY, np.arange(COUNT))
    found = way(noise)
    for other in (Noise.at(KEY + 1, np.arange(COUNT)), noise.stream(0), noise.stream(1), noise.stream(0).stream(0)):
        assert_unrelated(found, way(other))
    assert_unrelated(way(noise.stream(0)), way(noise.stream(1)))
    rows = np.arange(COUNT)
    assert_unrelated(found, noise.uniform(rows, rows * 0 + 1))


def assert_even(found: np.ndarray) -> None:
    """Every bit of the 16 highest is set half of the time, and the 256 parts of the range are hit alike."""
    words = (found * 2**16).astype(np.int64)
    shares = [(words >> bit & 1).mean() for bit in range(16)]
    assert np.abs(np.array(shares) - 0.5).max() < 4.5 * 0.5 / np.sqrt(len(found))
    expected = len(found) / 256
    squares = ((np.bincount(words >> 8, minlength=256) - expected) ** 2 / expected).sum()
    assert abs(squares - 255) < 4.5 * np.sqrt(2 * 255)


def assert_unrelated(one: np.ndarray, other: np.ndarray) -> None:
    """The 16 by 16 parts of the plane are hit alike."""
    expected = len(one) / 256
    counts = np.bincount((one * 16).astype(int) * 16 + (other * 16).astype(int), minlength=256)
    assert abs(((counts - expected) ** 2 / expected).sum() - 255) < 4.5 * np.sqrt(2 * 255)


def test_whole_numbers_are_below_their_bounds_and_even() -> None:
    noise, rows, numbers = Noise.at(KEY, np.arange(COUNT)), np.arange(COUNT), np.zeros(COUNT, np.int64)
    for bound in (1, 2, 7, 1000):
        found = noise.below(bound, rows, numbers)
        expected = COUNT / bound
        squares = ((np.bincount(found, minlength=bound) - expected) ** 2 / expected).sum()
        assert (found.min() >= 0, len(np.bincount(found)) <= bound) == (True, True)
        assert abs(squares - (bound - 1)) <= 4.5 * np.sqrt(2 * bound)
    bounds = np.arange(COUNT) % 9 + 1
    found = noise.below(bounds, rows, numbers)
    assert (found < bounds).all() and (noise.below(2**32 - 1, rows, numbers) < 2**32 - 1).all()
    assert found.tolist() == noise.below(bounds, rows, numbers).tolist()


def test_noise_that_is_drawn_follows_its_generator() -> None:
    one, same, other = (Noise.from_rng(np.random.default_rng(seed), 3).seeds.tolist() for seed in (0, 0, 1))
    assert one == same != other
    assert len({*one}) == 3
