"""The pace of a run: corrections stretch what is left of a schedule, and change nothing before them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osbert.data.step import Pace


@st.composite
def paces(draw: st.DrawFn) -> Pace:
    """Return a pace with up to four corrections."""
    pace = Pace(planned=draw(st.integers(2, 10_000)))
    for _ in range(draw(st.integers(0, 4))):
        first = pace.corrections[-1][0] + 1 if pace.corrections else 0
        if first >= pace.steps:
            break
        step = draw(st.integers(first, pace.steps - 1))
        pace = pace.with_correction(step, draw(st.integers(step + 1, step + 10_000)))
    return pace


@given(paces())
def test_a_run_walks_through_the_whole_schedule_without_a_jump(pace: Pace) -> None:
    steps = sorted({0, pace.steps, *(one for one, _ in pace.corrections), *range(0, pace.steps, 97)})
    places = [pace.place(step) for step in steps]
    assert places[0] == 0 and places[-1] == pytest.approx(pace.planned)
    assert all(before <= after for before, after in itertools.pairwise(places))
    assert pace.done(pace.steps) == pytest.approx(1)
    several = pace.places(min(pace.steps, 500))
    assert several.tolist() == pytest.approx([pace.place(step) for step in range(len(several))])


@given(paces(), st.data())
def test_a_correction_leaves_all_steps_before_it_as_they_were(pace: Pace, data: st.DataObject) -> None:
    if pace.steps < 2 or (pace.corrections and pace.corrections[-1][0] + 1 >= pace.steps):
        return
    first = pace.corrections[-1][0] + 1 if pace.corrections else 0
    step = data.draw(st.integers(first, pace.steps - 1))
    later = pace.with_correction(step, step + data.draw(st.integers(1, 500)))
    for earlier in range(0, step + 1, max(1, step // 7)):
        assert later.place(earlier) == pace.place(earlier)


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_without_corrections_a_step_is_its_own_place(planned: int, step: int) -> None:
    assert Pace(planned=planned).place(step) == step


@given(paces(), st.data())
def test_the_first_step_at_a_place_is_found(pace: Pace, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, pace.planned - 1))
    step = pace.step_at(place)
    assert pace.place(step) >= place
    assert step == 0 or pace.place(step - 1) < place


def test_a_correction_that_leaves_no_step_is_refused() -> None:
    for pace, step, steps in ((Pace(planned=9), 5, 5), (Pace(planned=9, corrections=((4, 8),)), 4, 9)):
        with pytest.raises(ValueError, match="steps in all"):
            pace.with_correction(step, steps)
