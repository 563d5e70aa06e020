"""Places in code points and in UTF-16 units: the same text, whatever counts it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osbert_lab.annotation.record_values import TextOffsets

TEXTS = st.text(alphabet="ab é漢🙂👩‍", min_size=1, max_size=20)


@st.composite
def texts_with_spans(draw: st.DrawFn) -> tuple[str, int, int]:
    text = draw(TEXTS)
    start = draw(st.integers(0, len(text) - 1))
    return text, start, draw(st.integers(start + 1, len(text)))


@given(texts_with_spans())
def test_units_go_there_and_back(found: tuple[str, int, int]) -> None:
    text, start, end = found
    places = TextOffsets(text)
    units = places.units((start, end))
    encoded = text.encode("utf-16-le")
    assert encoded[2 * units[0] : 2 * units[1]].decode("utf-16-le") == text[start:end]
    assert places.points(units, "utf-16") == (start, end) == places.points((start, end), "points")
    assert text[slice(*places.matching(units, text[start:end], likely="utf-16") or ())] == text[start:end]


def test_the_units_are_those_in_which_spans_are_words() -> None:
    places = TextOffsets("🙂🙂 EU rejects")
    assert places.detect_units([(5, 7)], likely="points") == "utf-16"
    assert places.detect_units([(3, 5)], likely="utf-16") == "points"
    assert places.detect_units([(1, 3)], likely="utf-16") == "points"  # the first unit of a pair begins no character
    assert places.detect_units([(12, 15)], likely="points") == "utf-16"  # beyond the last code point
    assert TextOffsets("🙂 a good film").detect_units([(2, 3)], likely="utf-16") == "points"  # no span is a space
    chinese = TextOffsets("漢字🙂漢字漢字漢")
    assert [chinese.detect_units([(5, 6)], likely=units) for units in ("points", "utf-16")] == ["points", "utf-16"]
    assert places.points((0, 99), "points") is None and places.points((3, 3), "points") is None
