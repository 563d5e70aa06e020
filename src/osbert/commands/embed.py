"""osbert embed: the vectors that an encoder gives the texts of a file, as one .npz."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter

from osbert.data.table import Reading, Row, Table, open_table
from osbert.data.table_columns import Columns, choose
from osbert.errors import Problems, UserError

if TYPE_CHECKING:
    from osbert.serving.engine import Engine

ROWS = 2048
"""Texts that are encoded at a time; only their vectors stay in memory."""


def embed(
    model: Path,
    file: Path,
    /,
    *,
    out: Path,
    pooling: Literal["cls", "mean", "max", "pooler", "tokens"] = "mean",
    layers: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-1",
    text: str = "",
    pair: str = "",
) -> None:
    """Write the vectors of a file's texts, in the file's order, as `vectors` in an .npz.

    The file also gets `lines`, the line of each text. With --pooling tokens, `vectors` has a row for each token: text k
    is vectors[starts[k]:starts[k + 1]], its pieces are `ids`. With several layers each vector is a stack, (layers, D).

    Parameters
    ----------
    model
        A run folder of osbert's, or a Hugging Face BERT folder.
    file
        A .txt file with a text a line, or a CSV, TSV or JSON-lines file.
    out
        The .npz file to write.
    pooling
        cls: the state of [CLS], or of the last [SEP] in a left-to-right model. mean, max: over all tokens, [CLS] and
        [SEP] included. pooler: BERT's tanh layer on the last cls. tokens: no pooling.
    layers
        Which layers: 0 is the embedding layer, 1 the first block, -1 the last; "-1,-2,-3,-4" stacks four.
    text
        The column with the text; found by its name when left open.
    pair
        The column with the second text, for pairs.
    """
    from osbert.serving.engine import load

    chosen = read_layers(layers)
    if out.suffix != ".npz":
        raise UserError(f"{out}: vectors are written as .npz.")
    table = open_table(file, Reading(names=tuple(filter(None, (text, pair)))))
    columns = choose(table.columns, asked=Columns(text=text, pair=pair), path=str(file), labelled=False)
    print(f"{table.describe()}; {Columns(text=columns.text, pair=columns.pair).describe()}")
    engine = load(model)
    for remark in engine.remarks:
        print(f"{model}: {remark}")
    arrays, cut = vectors(engine, table, columns, pooling=pooling, layers=chosen)
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".{out.stem}.part.npz")
    np.savez(aside, allow_pickle=False, **arrays)
    aside.replace(out)
    print(f"{len(arrays['lines']):,} texts: vectors {arrays['vectors'].shape} -> {out}")
    if cut:
        print(f"{cut:,} texts are longer than {engine.packer.length} tokens; their ends were not read.")


def read_layers(text: str) -> int | list[int]:
    """Return "-1" as -1 and "-1,-2" as [-1, -2]; raises UserError for anything else."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--layers {text}: give numbers such as -1 or -1,-2,-3,-4.") from error
    return numbers[0] if len(numbers) == 1 else numbers


def vectors(
    engine: Engine, table: Table, columns: Columns, *, pooling: Any, layers: int | Sequence[int]
) -> tuple[dict[str, np.ndarray], int]:
    """Return the arrays of the .npz by name, and how many texts did not fit."""
    found: dict[str, list[np.ndarray]] = {"vectors": [], "lines": [], "ids": [], "lengths": []}
    cut = 0
    for rows in _chunks(table):
        texts = [tuple(row.values.get(name, "") for name in columns.texts) for row in rows]
        examples = engine.examples(texts)
        values = engine.vectors(examples, pooling=pooling, layers=layers)
        found["vectors"].append(np.concatenate(values) if pooling == "tokens" else values)
        found["lines"].append(np.array([row.line for row in rows]))
        found["ids"] += [example.ids for example in examples] if pooling == "tokens" else []
        found["lengths"].append(np.array([len(example) for example in examples]))
        cut += sum(example.truncated > 0 for example in examples)
    if not found["lines"]:
        raise UserError(f"{table.path} has no rows: there is nothing to embed.")
    arrays = {name: np.concatenate(parts) for name, parts in found.items() if parts}
    lengths = arrays.pop("lengths")
    if pooling == "tokens":
        arrays["starts"] = np.concatenate([[0], np.cumsum(lengths)])
    return arrays, cut


def _chunks(table: Table) -> Iterator[list[Row]]:
    problems = Problems(heading=f"{table.path} cannot be used")
    rows = table.rows(problems)
    while chunk := list(islice(rows, ROWS)):
        problems.stop_if_any()
        yield chunk
    problems.stop_if_any()
