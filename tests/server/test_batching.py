"""The queue: token budgets, the bound on waiting, turns of large requests, deadlines; nothing lost, nothing twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osbert.server.batching import JobSlice, Queue, ServerJob


def job(number: int, *sizes: int, group: str = "a", arrived: float = 0.0, deadline: float = 100.0) -> ServerJob:
    items = [(number, place) for place in range(len(sizes))]
    return ServerJob(number=number, group=group, items=items, sizes=sizes, arrived=arrived, deadline=deadline)


def queue(*jobs: ServerJob, tokens: int = 100, wait: float = 0.5) -> Queue:
    made = Queue(tokens=tokens, wait=wait)
    for one in jobs:
        made.add(one)
    return made


def taken(parts: list[JobSlice]) -> list[tuple[int, int]]:
    return [item for part in parts for item in part.items]


def test_a_pass_waits_for_company_but_not_long_and_not_when_it_is_full() -> None:
    made = queue(job(8, 10), job(9, 10))
    made.take()
    assert made.due(0) is None
    made.add(job(1, 40, arrived=1.0))
    assert made.due(1.125) == 0.375 and made.due(1.5) == 0 and made.due(9) == 0
    made.add(job(2, 70, group="b", arrived=1.1))
    assert made.due(1.25) == 0.25  # another group is no company
    made.add(job(3, 60, arrived=1.2))
    assert made.due(1.25) == 0
    assert taken(made.take()) == [(1, 0), (3, 0)]
    assert taken(made.take()) == [(2, 0)] and made.due(2) is None


def test_a_client_that_is_alone_waits_for_nobody() -> None:
    made = queue(job(1, 40, arrived=1.0))
    assert made.due(1.0) == 0
    made.take()
    made.add(job(2, 40, arrived=2.0))
    assert made.due(2.0) == 0
    made.add(job(3, 40, arrived=2.0))  # it came during a pass
    made.take()
    made.add(job(4, 40, arrived=3.0))
    assert made.due(3.0) == 0.5
    made.take()
    made.add(job(5, 40, arrived=4.0))
    assert made.due(4.0) == 0


def test_a_large_request_gives_way_after_each_pass() -> None:
    made = queue(job(1, *[40] * 5), job(2, 90), job(3, 10))
    assert [taken(made.take()) for _ in range(4)] == [
        [(1, 0), (1, 1)],
        [(2, 0), (3, 0)],
        [(1, 2), (1, 3)],
        [(1, 4)],
    ]
    assert not made.jobs


def test_what_is_larger_than_a_pass_is_read_alone() -> None:
    made = queue(job(1, 10), job(2, 500), job(3, 10))
    assert [taken(made.take()) for _ in range(3)] == [[(1, 0)], [(2, 0)], [(3, 0)]]


def test_dropped_and_late_requests_are_not_read() -> None:
    late, gone = job(1, 10, deadline=5.0), job(2, 10)
    made = queue(late, gone, job(3, 10))
    made.drop(2)
    made.drop(2)
    assert made.remove_expired(4.9) == [] and made.remove_expired(5.0) == [late]
    assert taken(made.take()) == [(3, 0)]


@given(
    st.lists(st.tuples(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.sampled_from("ab")), max_size=8),
    st.integers(1, 100),
)
def test_everything_is_read_once_in_order_and_within_the_budget(
    requests: list[tuple[list[int], str]], tokens: int
) -> None:
    jobs = [job(number, *sizes, group=group) for number, (sizes, group) in enumerate(requests)]
    made = queue(*jobs, tokens=tokens)
    read: dict[int, list[int]] = {one.number: [] for one in jobs}
    while made.jobs:
        parts = made.take()
        size = sum(sum(part.job.sizes[part.first : part.last]) for part in parts)
        assert len({part.job.group for part in parts}) == 1
        assert size <= tokens or len(taken(parts)) == 1
        for number, place in taken(parts):
            read[number].append(place)
    assert read == {one.number: list(range(len(one.items))) for one in jobs}
