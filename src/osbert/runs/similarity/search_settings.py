"""The settings of `osbert search`, which load no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from osbert.interop.opening import Opening


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How the nearest texts are searched."""

    top: int = 10
    """Most texts for a query."""
    above: float = -1.0
    """Leave out texts whose cosine is smaller; with hybrid, of the ranking by vectors."""
    backend: Literal["exact", "faiss"] = "exact"
    """exact: every vector is compared. faiss: an approximate index, built once beside the file (extra faiss)."""
    hybrid: bool = False
    """Fuse the ranking by vectors with one by words (BM25, reciprocal rank fusion)."""
    role: str | None = None
    """The role of the queries, whose prompt is put before each. Default: query for a file of documents, or of texts
    without a role if the model has a prompt for queries. A file of another role is searched with that role alone."""
    device: str = "auto"
    """cpu, cuda or cuda:N. auto: a GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class SearchKeywords:
    """The keywords of `osbert.search`: how texts are searched, and how the model is opened."""

    search: SearchOptions
    opening: Opening
