"""What a model wrote after a text, or for one. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What a model wrote after a text.

    `text`: what was written; where a space belongs between it and the given text, it begins with one. `pieces`: how
    many it is made of. `log_probability`: of them all, and of the end if it was written, in nats. `ended`: "end", the
    model ended the text; "most": it wrote as many pieces as it was allowed to. `truncated`: pieces of the given text
    that were not read: of its beginning where the model goes on with it, else of its end.
    """

    text: str
    pieces: int
    log_probability: float
    ended: Literal["end", "most"]
    truncated: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)
