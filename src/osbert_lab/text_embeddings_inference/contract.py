"""What the calls of TEI's clients share: truncation, and errors {"error", "error_type"}."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from osbert.server.calls.schemas import Refusal, RequestBody, shorten
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


class ParameterRequest(RequestBody):
    """A request whose fields, but for its inputs and the model, may also be those of an object, `parameters`."""

    model: str | None = Field(default=None, description="osbert's: the model's name; the first able one without it.")

    @model_validator(mode="before")
    @classmethod
    def read_parameters(cls, content: Any) -> Any:
        """Return a request with its parameters beside its inputs.

        Raises PydanticCustomError for the first unknown parameter, and for one that stands beside the inputs, too.
        """
        if not isinstance(content, dict) or not isinstance(parameters := content.get("parameters", {}), dict | None):
            return content
        fields = {name: value for name, value in content.items() if name != "parameters"}
        known = [name for name in cls.model_fields if name not in ("inputs", "model")]
        for name, value in (parameters or {}).items():
            if name not in known:
                message = f"there is no {shorten(name)}; there are {', '.join(known)}"
                raise PydanticCustomError("unknown_parameter", message)
            if name in fields:
                raise PydanticCustomError("repeated_parameter", f"{name} stands in parameters and beside inputs, too")
            fields[name] = value
        return fields


class TEICall(ClientCall):
    """A call of TEI."""

    error = TEIError

    def refuse(self, refusal: Refusal) -> tuple[int, Any]:
        """Return TEI's error."""
        kind = ERROR_TYPES.get(refusal.status, "Validation")
        message = refusal.message.removeprefix(f"{refusal.field}: ")
        message = f"`{refusal.field}`: {message}" if refusal.field else message
        return refusal.status, {"error": message, "error_type": kind}
