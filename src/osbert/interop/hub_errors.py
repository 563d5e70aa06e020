"""Converts huggingface_hub's errors to errors for the user, with the cause and advice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osbert.errors import UserError
from osbert.files import disk_full

_HELP = "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"


@dataclass(frozen=True)
class Failure:
    """The failed operation: the listing of a repository at a revision, or the download of a `file` into the cache.

    `before`: the beginning of the message, with the other meaning of the name.
    """

    name: str
    revision: str
    cache: Path
    file: str = ""
    before: str = ""

    @property
    def what(self) -> str:
        """The model and file, as the subject of a message."""
        model = self.name if self.revision == "main" else f"{self.name}@{self.revision}"
        return f"{self.file} of {model}" if self.file else model


def explain(error: Exception, failure: Failure) -> UserError:
    """Return the error for the user from an error of huggingface_hub or its HTTP client."""
    from huggingface_hub import constants, errors

    error, hub = _cause(error), constants.ENDPOINT
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        text, code = _explain_response(error, failure, hub)
        return UserError(text, code=code)
    if isinstance(error, OSError) and (disk_full(error) or (error.errno and error.filename)):
        return UserError(_unwritten(error, failure), code="not-written")
    if isinstance(error, ValueError | TypeError | LookupError | AttributeError | errors.FileMetadataError):
        return UserError(
            f"{failure.what}: {hub} does not answer as a Hugging Face hub does ({_first_line(error)}). Is HF_ENDPOINT "
            "the address of a hub, and does no proxy or login page of the network answer in its place?",
            code="not-downloaded",
        )
    if "Consistency check" in str(error):
        return UserError(
            f"{failure.what} has not come whole from {hub}. Give the command again.", code="not-downloaded"
        )
    return UserError(
        f"{failure.before}{failure.what} cannot be fetched: {hub} cannot be reached ({_first_line(error)}). Check the "
        f"network, and HF_ENDPOINT and the proxy if they are set ({_HELP}). The files that are whole are kept: the "
        "same command goes on after them.",
        code="not-downloaded",
    )


def _explain_response(error: Exception, failure: Failure, hub: str) -> tuple[str, str]:
    """Return the meaning of an HTTP error response of the hub, and the code of the error."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    name = failure.name
    if isinstance(error, GatedRepoError):
        return (
            f"{name} is gated: its owner lets in only those who have accepted its terms. Open {hub}/{name}, accept "
            f"them, make a token at {hub}/settings/tokens, and set HF_TOKEN to it.",
            "not-permitted",
        )
    if isinstance(error, RevisionNotFoundError):
        return (
            f"{name} is at {hub}, but has no revision '{failure.revision}': give a branch, a tag or a whole commit of "
            f"40 digits, as listed at {hub}/{name}/commits/main.",
            "unknown-model",
        )
    assert isinstance(error, HfHubHTTPError)
    status = error.response.status_code
    refused = "Invalid credentials" in error.response.headers.get("X-Error-Message", "")
    if isinstance(error, RepositoryNotFoundError) or status == 404 or (status == 401 and not refused):
        return (
            f"{failure.before}{name} is not at {hub}: check the spelling. If it is private, set HF_TOKEN to a token "
            "that may read it.",
            "unknown-model",
        )
    if status in (401, 403):
        return (
            f"{failure.what}: {hub} refuses the token (status {status}). Set HF_TOKEN to a valid one that may read the "
            "model, or unset it for a public model.",
            "not-permitted",
        )
    if status == 429:
        text = f"{failure.what}: {hub} has had too many requests (status 429). Wait some minutes, or set HF_TOKEN."
    else:
        text = f"{failure.what}: {hub} answers with status {status}. Try again later; is HF_ENDPOINT right?"
    return text, "not-downloaded"


def _unwritten(error: OSError, failure: Failure) -> str:
    """Return the meaning of an error of the file system."""
    if disk_full(error):
        return (
            f"The disk is full: {failure.what} does not fit into the cache {failure.cache}. Free some room, or set "
            "HF_HOME to a folder on another disk. The files that are whole are kept."
        )
    return f"{error.filename}: {error.strerror}. The hub's cache must be writable; set HF_HOME to a folder that is."


def _cause(error: Exception) -> Exception:
    """Return the cause of huggingface_hub's "not in the cache" error, which hides the original one."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    while isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.200}"
