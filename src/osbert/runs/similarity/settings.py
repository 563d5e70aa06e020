"""Settings of searches in files of vectors; a server reads them, too, and loads nothing else for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Backend = Literal["auto", "exact", "binary", "faiss", "usearch", "plaid", "plaid-2bit"]
"""The searches in a file of vectors."""


@dataclass(frozen=True, kw_only=True)
class RankingOptions:
    """How texts are ranked for a query."""

    above: float = -1.0
    """Leave out texts whose cosine is smaller; with hybrid, of the ranking by vectors."""
    backend: Backend = "auto"
    """exact: every vector is compared. binary: bits choose candidates (a file of --dtype binary). faiss, usearch:
    an approximate index, built once beside the file (extras faiss and usearch). plaid, plaid-2bit: one of many vectors
    a text. auto: binary where the file has bits, else exact."""
    hybrid: bool = False
    """Fuse the ranking by vectors with one by words (BM25), by reciprocal rank fusion."""
    weights: str = ""
    """Fuse by weighted sums of scores in place of ranks: a number for each ranking, separated by commas, BM25 last.
    Scores are scaled to 0 to 1, query by query. osbert evaluate retrieval --fuse fits weights."""
    rerank: str = ""
    """A fine-tuned reranker, a folder or a name: it reads the first 100 texts of a query and orders them
    anew."""
    role: str | None = None
    """The role of the queries, whose prompt is put before each. Default: query for a file of documents, or of texts
    without a role if the model has a prompt for queries. A file of another role is searched with that role alone."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(RankingOptions):
    """How the nearest texts are searched."""

    top: int = 10
    """Most texts for a query."""
    device: str = "auto"
    """cpu, cuda or cuda:N. auto: a GPU if there is one."""
