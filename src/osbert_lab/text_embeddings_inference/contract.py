"""What the calls of TEI's clients share: truncation, and errors {"error", "error_type"}."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from osbert.server.calls.schemas import Refusal, RequestBody
from osbert.server.clients.contract import ClientCall

ERROR_TYPES = {429: "Overloaded", 500: "Backend", 503: "Unhealthy", 504: "Backend"}


class TEIError(BaseModel):
    """An answer to TEI's clients that is not 200."""

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]


class TruncatingRequest(RequestBody):
    """A request of TEI's clients."""

    truncate: bool | None = Field(default=None, description="Whether a text that is too long is cut, not refused.")
    truncation_direction: Literal["right", "Right"] = Field(
        default="right", description="The end of a text that is cut; osbert cuts no beginnings."
    )


class TEICall(ClientCall):
    """A call of TEI."""

    error = TEIError

    def refuse(self, refusal: Refusal) -> tuple[int, Any]:
        """Return TEI's error."""
        kind = ERROR_TYPES.get(refusal.status, "Validation")
        message = refusal.message.removeprefix(f"{refusal.field}: ")
        message = f"`{refusal.field}`: {message}" if refusal.field else message
        return refusal.status, {"error": message, "error_type": kind}
