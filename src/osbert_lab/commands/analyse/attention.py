"""osbert analyse attention: shows what each head attends to in one text, as a page that works offline."""

from __future__ import annotations

from pathlib import Path

from osbert.console.arguments import ModelFolder, OpeningOptions
from osbert.console.output import Result
from osbert.interop.opening import CAREFUL
from osbert.terminal import one_line


def attention(
    run: ModelFolder,
    text: str,
    /,
    *,
    pair: str | None = None,
    out: Path,
    megabytes: float = 10.0,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Show what each head attends to in a text or a pair, as one page that needs no network.

    The page has lines between the words, a map, all heads at once, and the products of queries and keys; by word or by
    piece, by weight, by weight times value norm, and rolled out over the layers. Pictures are saved as SVG and PNG.

    Parameters
    ----------
    run
        A run folder, a Hugging Face folder, or a name (docs/models-by-name.md).
    text
        The text, in quotes.
    pair
        The second text of a pair.
    out
        The page to write, a file that ends in .html.
    megabytes
        Approximate limit of the page's size; figures of a long text are rounded more, and the page states the error.
    """
    from osbert.inference.engine import load

    text_attention = load(run, opening=opening).attention(text, pair)
    page = text_attention.save(out, megabytes=megabytes)
    print(*map(one_line, text_attention.lines()), f"-> {page}", sep="\n")
    layers, heads, tokens, _ = text_attention.weights.shape
    return {"page": str(page), "layers": layers, "heads": heads, "tokens": tokens, "notes": list(text_attention.notes)}
