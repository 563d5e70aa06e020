"""Windows cover a text, and each piece counts once, where it has most context."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osbert.data.long_texts import windows


@given(st.integers(0, 60), st.integers(1, 12), st.integers(0, 12))
def test_every_piece_counts_where_its_nearer_edge_is_farthest(count: int, room: int, overlap: int) -> None:
    found = windows(count, room=room, overlap=overlap)
    assert [place for window in found for place in range(window.first, window.last)] == list(range(count))
    assert found[0].start == 0 and found[-1].end == count
    for window in found:
        assert window.end - window.start <= room
        for place in range(window.first, window.last):
            assert window.start <= place < window.end
            others = [min(place - one.start, one.end - 1 - place) for one in found]
            own = min(place - window.start, window.end - 1 - place)
            # The text's own ends are no edges: nothing lies beyond them.
            if window.start > 0 and window.end < count:
                assert own == max(others)


def test_neighbours_share_what_was_asked_for() -> None:
    assert windows(10, room=6, overlap=2) == [(0, 6, 0, 5), (4, 10, 5, 10)]
    assert windows(6, room=6, overlap=2) == [(0, 6, 0, 6)]
    assert len(windows(100, room=6, overlap=99)) == 33
