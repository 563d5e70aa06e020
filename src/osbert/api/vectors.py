"""What is done with vectors of texts: search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osbert.runs.contract import Watch, ignore

if TYPE_CHECKING:
    from osbert.runs.search import Neighbourhood


def search(
    vectors: str | Path,
    queries: str | Sequence[str] | Sequence[tuple[str, str]] | Any,
    *,
    model: str | Path | None = None,
    watch: Watch = ignore,
    **options: Any,
) -> list[Neighbourhood]:
    """Return the texts of a file of vectors that are nearest to each query, in the order of the queries.

    `vectors`: a file that `embed` wrote. `queries`: a text, a list of texts, or of pairs where the file is of pairs,
    which the file's model embeds; or an array (Q, D), for which no model is opened. `model`: where the model is, if it
    has moved. `options`: top=10, above=0.5 (the least cosine), backend="faiss", hybrid=True and what else
    `osbert search` takes; trust and verify are as for `load`. `watch` is called with a SearchProgress
    (osbert.runs.search) after each block. Raises osbert.errors.UserError for another model than the file's, vectors of
    another width, and vectors that are not finite.

    >>> vectors = osbert.embed("encoder", "more.csv", out="vectors.npy")
    >>> (found,) = osbert.search("vectors.npy", "a good play", top=2)
    >>> [near.texts[0] for near in found.nearest]
    ['a good play', 'a good play']
    """
    import numpy as np

    from osbert import recipe
    from osbert.interop.hub import locate
    from osbert.runs.search import SearchRequest
    from osbert.runs.search import search as run
    from osbert.runs.search_settings import SearchKeywords

    chosen = recipe.settings(SearchKeywords, options)
    request = SearchRequest(
        vectors=Path(vectors),
        options=chosen.search,
        model=None if model is None else locate(model, watch=watch).path,
        opening=chosen.opening,
    )
    if isinstance(queries, np.ndarray):
        return run(request, queries, watch=watch)
    texts = [queries] if isinstance(queries, str) else queries
    return run(request, [(text,) if isinstance(text, str) else tuple(text) for text in texts], watch=watch)
