"""Which requests a model reads together: the oldest first, as many tokens as a pass takes, large requests in turns.

A request's items (texts, pairs, records) may be read in several passes. What can be read in one pass has the same
`group`. Time comes from outside, so that tests need none.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(kw_only=True, eq=False)
class ServerJob:
    """A request as the queue sees it.

    `items`, with the tokens of each in `sizes`. `arrived`, `deadline`: seconds on one clock. `results`: what was made
    of the first items so far.
    """

    number: int
    group: Hashable
    items: Sequence[Any]
    sizes: Sequence[int]
    arrived: float
    deadline: float
    asked: Any = None
    taken: int = 0
    results: list[Any] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Return how many items no pass has taken yet."""
        return len(self.items) - self.taken


class JobSlice(NamedTuple):
    """The items of a job that one pass reads: those from `first` to before `last`."""

    job: ServerJob
    first: int
    last: int

    @property
    def items(self) -> Sequence[Any]:
        """Return these items."""
        return self.job.items[self.first : self.last]


class Queue:
    """Jobs in the order of their arrival; one that a pass could not finish goes on behind the others.

    `tokens`: the most in a pass, unless one item has more. `wait`: seconds that a job waits for company.
    """

    def __init__(self, *, tokens: int, wait: float) -> None:
        """Begin empty."""
        self.tokens = tokens
        self.wait = wait
        self.jobs: dict[int, ServerJob] = {}

    def add(self, job: ServerJob) -> None:
        """Put a job at the end."""
        self.jobs[job.number] = job

    def drop(self, number: int) -> None:
        """Forget a job, if it is still there."""
        self.jobs.pop(number, None)

    def expired(self, now: float) -> list[ServerJob]:
        """Take out the jobs whose deadline is over, and return them."""
        late = [job for job in self.jobs.values() if job.deadline <= now]
        for job in late:
            del self.jobs[job.number]
        return late

    def due(self, now: float) -> float | None:
        """Return in how many seconds a pass should begin, 0 for at once; None where there is nothing to read."""
        head = next(iter(self.jobs.values()), None)
        if head is None:
            return None
        remaining = head.arrived + self.wait - now
        if remaining <= 0 or head.taken:
            return 0.0
        waiting = 0
        for job in self.jobs.values():
            if job.group == head.group:
                waiting += sum(job.sizes[job.taken :])
                if waiting >= self.tokens:
                    return 0.0
        return remaining

    def take(self) -> list[JobSlice]:
        """Return what the next pass reads, at least one item of the oldest job; finished jobs leave the queue."""
        head = next(iter(self.jobs.values()))
        parts: list[JobSlice] = []
        room = self.tokens
        for job in [job for job in self.jobs.values() if job.group == head.group]:
            first = job.taken
            while job.left and (job.sizes[job.taken] <= room or not (parts or job.taken > first)):
                room -= job.sizes[job.taken]
                job.taken += 1
            if job.taken > first:
                parts.append(JobSlice(job, first, job.taken))
                del self.jobs[job.number]
                if job.left:
                    self.jobs[job.number] = job  # behind the others
            if job.left:
                break
        return parts
