"""The result of text generation. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The text that a model generated for a given text.

    `text`: starts with a space if one belongs between it and the given text. `pieces`: its number of pieces.
    `log_probability`: the sum over all pieces, and the end piece if the model predicted it, in nats. `ended`: "end" if
    the model ended the text; "most" if it reached the largest number of pieces. `truncated`: number of pieces of the
    given text that were not read: its first ones if the model continues the text, else its last ones.
    """

    text: str
    pieces: int
    log_probability: float
    ended: Literal["end", "most"]
    truncated: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)
