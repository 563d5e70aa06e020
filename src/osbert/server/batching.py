"""Dynamic batching: the oldest requests first, up to a number of tokens a pass, large requests in several passes.

Items (texts, pairs, records) of requests with the same `group` can share a pass. Methods take the time as an argument,
so that tests need no clock.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(kw_only=True, eq=False)
class ServerJob:
    """A request in the queue.

    `sizes`: the number of tokens of each item. `arrived`, `deadline`: seconds of time.monotonic. `taken`: how many
    items passes have taken so far. `results`: the results of the first items, in their order.
    """

    number: int
    group: Hashable
    items: Sequence[Any]
    sizes: Sequence[int]
    arrived: float
    deadline: float
    request: Any = None
    taken: int = 0
    results: list[Any] = field(default_factory=list)

    @property
    def left(self) -> int:
        """The number of items that no pass has taken yet."""
        return len(self.items) - self.taken


class JobSlice(NamedTuple):
    """The items of a job that one pass reads: `items[first:last]`."""

    job: ServerJob
    first: int
    last: int

    @property
    def items(self) -> Sequence[Any]:
        """The items of the slice."""
        return self.job.items[self.first : self.last]


class Queue:
    """Jobs in order of arrival. A job that a pass does not finish moves to the end of the queue (round robin).

    `tokens`: most tokens in a pass; a single item may have more. `wait`: most seconds that a job waits for others to
    share its pass, if there were others at the last one: a client that is alone waits for nobody.
    """

    def __init__(self, *, tokens: int, wait: float) -> None:
        self.tokens = tokens
        self.wait = wait
        self.others_waited = False  # when the last pass was taken
        # a dict keeps the order of insertion and removes by number in O(1)
        self.jobs: dict[int, ServerJob] = {}

    def add(self, job: ServerJob) -> None:
        """Append a job."""
        self.jobs[job.number] = job

    def drop(self, number: int) -> None:
        """Remove a job, if it is still in the queue."""
        self.jobs.pop(number, None)

    def remove_expired(self, now: float) -> list[ServerJob]:
        """Remove and return the jobs whose deadline has passed."""
        late = [job for job in self.jobs.values() if job.deadline <= now]
        for job in late:
            del self.jobs[job.number]
        return late

    def due(self, now: float) -> float | None:
        """Return the seconds until the next pass should begin, 0 for at once; None if the queue is empty."""
        head = next(iter(self.jobs.values()), None)
        if head is None:
            return None
        # A job that has begun does not wait again: others had their time to come when it was first at the head.
        remaining = head.arrived + self.wait * self.others_waited - now
        if remaining <= 0 or head.taken:
            return 0.0
        # Waiting longer brings nothing if the jobs of the head's group fill a pass already.
        waiting = 0
        for job in self.jobs.values():
            if job.group == head.group:
                waiting += sum(job.sizes[job.taken :])
                if waiting >= self.tokens:
                    return 0.0
        return remaining

    def take(self) -> list[JobSlice]:
        """Return the slices of the next pass, with at least one item of the oldest job. Finished jobs are removed."""
        head = next(iter(self.jobs.values()))
        self.others_waited = len(self.jobs) > 1
        parts: list[JobSlice] = []
        room = self.tokens
        for job in [job for job in self.jobs.values() if job.group == head.group]:
            first = job.taken
            # The first item of a pass is taken even if it exceeds `tokens`; else it would stay in the queue for ever.
            while job.left and (job.sizes[job.taken] <= room or not (parts or job.taken > first)):
                room -= job.sizes[job.taken]
                job.taken += 1
            if job.taken > first:
                parts.append(JobSlice(job, first, job.taken))
                del self.jobs[job.number]
                if job.left:
                    self.jobs[job.number] = job  # behind the others
            # This job did not fit whole. Later jobs must not overtake it with smaller items.
            if job.left:
                break
        return parts
