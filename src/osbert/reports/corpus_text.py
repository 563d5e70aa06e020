"""A corpus as text: its report as a table, and the first sentences of some documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from osbert.corpus.shards import Corpus
from osbert.corpus.state import changed_inputs
from osbert.terminal import format_count
from osbert.text.document import Document
from osbert.text.file_tokenizer import AnyTokenizer

SAMPLE = 3
"""Default number of documents shown."""
SENTENCES = 3
"""Number of sentences shown of a document."""
PIECES = 60
"""Number of pieces shown of a sentence."""


def report_text(folder: Path | str, report: Mapping[str, Any]) -> Group:
    """Return the report of a corpus as a table, followed by warnings and the first repairs."""
    table = Table(title=f"Corpus {folder}", show_header=False, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for name, value in _rows(report):
        table.add_row(name, value)
    warnings = [Text(f"warning: {warning}", style="yellow") for warning in report["warnings"]]
    return Group(table, *warnings, *(Text(f"  {repair}", style="dim") for repair in report["repairs"]["examples"]))


def mixture_text(corpus: Corpus) -> Table:
    """Return the parts of a mixture as a table: tokens, fraction of an epoch, and how often an epoch reads each."""
    table = Table(title=f"Mixture {corpus.folder}, {corpus.tokens:,} tokens an epoch", title_justify="left")
    table.add_column("corpus")
    for name in ("tokens", "of an epoch", "times an epoch"):
        table.add_column(name, justify="right")
    for part in corpus.parts:
        times = part.fraction * corpus.tokens / max(1, part.tokens)
        table.add_row(Text(part.name), f"{part.tokens:,}", f"{part.fraction:.1%}", f"{times:.2f}")
    return table


def verification_text(corpus: Corpus) -> str:
    """Return what `Corpus.verify` has compared, in a sentence."""
    if corpus.store is None:
        return "Every file is what was written when the corpus was built."
    return (
        "The copied files are what was written when the corpus was built. The pieces stay in the store: of them only "
        "the sizes were compared."
    )


def changed_text(corpus: Corpus) -> Iterator[str]:
    """Yield a remark if input files have another content now than when the corpus was built."""
    inputs = corpus.manifest["identity"].get("inputs", ())
    if changed := changed_inputs(inputs):
        listed = ", ".join(changed[:5]) + (f" and {len(changed) - 5:,} more" if len(changed) > 5 else "")
        yield f"{len(changed):,} of {format_count(len(inputs), 'input')} changed since the corpus was built: {listed}."


def sample_text(corpus: Corpus, tokenizer: AnyTokenizer, count: int = SAMPLE) -> Iterator[Text]:
    """Yield lines with the first sentences of documents from `count` positions of the corpus."""
    for document in _sample(corpus, count):
        yield Text()
        for first, last in islice(zip(document.sentences, document.sentences[1:]), SENTENCES):
            yield _join_pieces(document.ids[first:last], tokenizer)
        if len(document.sentences) - 1 > SENTENCES:
            yield Text(f"(of {len(document.sentences) - 1:,} sentences, {len(document):,} tokens)", style="dim")


def _sample(corpus: Corpus, count: int) -> Iterator[Document]:
    """Yield documents from `count` positions, evenly spaced; fewer if the corpus has fewer blocks."""
    blocks = corpus.blocks(max(1, min(4096, corpus.tokens // count)))
    block_indices = sorted({number * len(blocks) // count for number in range(count)})
    for block_index in block_indices:
        documents = corpus.read(blocks[block_index])
        # The first of a block is mostly the end of a document that began before it; the next one begins here.
        yield documents[0 if block_index == 0 else min(1, len(documents) - 1)]


def _join_pieces(ids: Iterable[int], tokenizer: AnyTokenizer) -> Text:
    """Return pieces as text; a dot joins each continuing piece to the one before it."""
    text = Text()
    for position, index in enumerate(ids):
        if position == PIECES:
            text.append(" ...", style="dim")
            break
        piece = tokenizer.vocabulary[index]
        if tokenizer.continuation[index]:
            text.append("·", style="bold red").append(piece.removeprefix("##"))
        else:
            text.append(f" {piece}" if position else piece)
    return text


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    fate = "dropped" if report["deduplicated"] else "kept"
    for name in ("documents", "sentences", "tokens"):
        yield name, f"{report[name]:,}"
    yield "words and signs", f"{report['words']:,}"
    yield "tokens a word", f"{report['tokens_per_word']:.3f}"
    yield "[UNK] rate", f"{report['unknown_rate']:.3%} of tokens ({report['unknown']:,})"
    yield "duplicate lines", f"{report['duplicate_lines']:,} of {report['lines']:,}, {fate}"
    yield "duplicate documents", f"{report['duplicate_documents']:,}, {fate}"
    if "left_out" in report:
        counts = [f"{count:,} by {name.replace('_', ' ')}" for name, count in report["left_out"].items()]
        yield "documents left out", ", ".join(counts) or "none"
    yield "text read", f"{report['text_bytes'] / 1e6:,.1f} MB in {report['inputs']:,} file(s)"
    yield "on disk", f"{report['bytes_on_disk'] / 1e6:,.1f} MB"
    yield "time", f"{report['seconds']:,.1f} s, {report['megabytes_per_second']:.1f} MB/s"
