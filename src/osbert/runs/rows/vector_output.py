"""How vectors are made, and where they are written: the form, what it can hold, and streams."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, get_args

from osbert.data.long_texts import Long  # noqa: F401  (the command line looks up inherited fields' types here)
from osbert.errors import UserError
from osbert.files import is_stream
from osbert.inference.vectors.files import beside
from osbert.inference.vectors.quantizing import NumberType
from osbert.inference.vectors.settings import NAMED, EmbeddingOptions, Pooling  # noqa: F401
from osbert.models.forms import VectorKind

SUFFIXES = (".npy", ".npz", ".parquet", ".jsonl")
"""The forms in which vectors are written."""
LINES = "features"
"""The name of the column that holds JSON lines."""
Output = Path | BinaryIO
"""A file; or a pipe or device by its path, or a stream that is open, none of which can be gone on with."""


@dataclass(frozen=True, kw_only=True)
class VectorOptions(EmbeddingOptions):
    """How vectors are made, and on what."""

    tokens: int = 4096
    """Most tokens in one pass through the model."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto is a GPU where there is one."""
    dtype: NumberType = "float32"
    """int8: a quarter of the bytes; a vector keeps its direction, not its length. binary: bits beside int8, 9/32 of the
    bytes; a search has the bits in memory, 1/32, and reads only the int8 vectors of candidates. How many of the 10
    nearest texts a search then still finds is measured and reported."""
    update: bool = False
    """Use the vectors that --out has already again: only texts that are new are embedded, and those that FILE does not
    have any more go."""
    out_form: str = ""
    """The form of the output: npy, npz, parquet or jsonl; by the ending of --out when left open."""
    keep_columns: bool = False
    """Keep the file's other columns beside the vectors, as text; in JSON lines as they were."""


def describe_output(out: Output) -> str:
    """Return what messages call an output."""
    return str(out) if isinstance(out, Path) else "standard output"


def is_streamed(out: Output) -> bool:
    """Return whether an output is a stream."""
    return not isinstance(out, Path) or is_stream(out)


def open_stream(out: Output) -> AbstractContextManager[BinaryIO]:
    """Return a stream to write to; one that was open stays so."""
    return out.open("wb") if isinstance(out, Path) else nullcontext(out)


def form_of(out: Output, options: VectorOptions) -> str:
    """Return one of SUFFIXES: what the options say, else the ending of the name, else JSON lines for a stream.

    Raises UserError at another one.
    """
    suffix = out.suffix if isinstance(out, Path) else ""
    form = f".{options.out_form}" if options.out_form else suffix or (".jsonl" if is_streamed(out) else "")
    if form not in SUFFIXES:
        raise UserError(
            f"{describe_output(out)}: vectors are written as {', '.join(SUFFIXES)}: give one as the ending of --out, "
            "or as --out-form.",
            code="unknown-output-format",
        )
    return form


def fitting(options: VectorOptions, form: str, out: Output) -> VectorOptions:
    """Return the options, with no pooling for a file of JSON lines where none is given.

    Raises UserError where the form cannot hold such vectors.
    """
    if form == ".jsonl" and options.pooling is None and not is_streamed(out):
        options = replace(options, pooling="tokens")
    if options.dtype not in get_args(NumberType):
        choices = ", ".join(get_args(NumberType))
        raise UserError(f"--dtype must be one of {choices}, not {options.dtype!r}.", code="invalid-value")
    forms = {"float32": SUFFIXES, "int8": (".npy", ".npz", ".parquet"), "binary": (".npy", ".npz")}[options.dtype]
    if options.dtype != "float32" and (form not in forms or options.pooling == "tokens"):
        raise UserError(
            f"{describe_output(out)}: --dtype {options.dtype} is for one vector a text, in {', '.join(forms)}.",
            code="unknown-output-format",
        )
    if options.update and (form == ".jsonl" or options.pooling == "tokens" or is_streamed(out)):
        raise UserError(
            f"{describe_output(out)}: --update is for the vectors of texts, in a file of .npy, .npz or .parquet.",
            code="options-exclude-each-other",
        )
    if options.pooling != "tokens":
        return options
    if form not in (".npz", ".jsonl"):
        raise UserError(
            f"{describe_output(out)}: with --pooling tokens a text has many vectors. Write .npz or .jsonl.",
            code="unknown-output-format",
        )
    if form == ".jsonl" and options.keep_columns:
        raise UserError(
            f"{describe_output(out)}: JSON lines of tokens cannot hold the file's columns. Remove --keep-columns, "
            "or use a --pooling such as mean.",
            code="options-exclude-each-other",
        )
    if form == ".jsonl" and options.layers in NAMED:
        raise UserError(
            f"{describe_output(out)}: JSON lines of tokens number the layers: give --layers as numbers, such as "
            "-1,-2,-3,-4.",
            code="unknown-output-format",
        )
    return options


def with_own_pooling(options: VectorOptions, form: str, model: Path) -> VectorOptions:
    """Return the options with the pooling of a sparse model, or of one of many vectors, for JSON lines.

    Their default is no pooling.
    """
    if form != ".jsonl" or options.pooling is not None:
        return options
    from osbert.interop.sentence_files import read_sentence_model  # loads torch

    try:
        sentences = read_sentence_model(model)
    except UserError:  # of a model that osbert does not support, the states of the encoder
        return options
    if sentences is None or sentences.kind == "dense":
        return options
    return replace(options, pooling=sentences.pooling)  # type: ignore[arg-type]


def require_form(form: str, options: VectorOptions, kind: VectorKind) -> None:
    """Raise UserError if such vectors, which are not dense, cannot be written in this form, or with these options."""
    if form not in (".npz", ".jsonl"):
        raise UserError(
            f"This model's vectors ({kind}) are written as .npz or .jsonl, not {form}. For dense ones, give a "
            "--pooling such as mean.",
            code="unknown-output-format",
        )
    if options.dtype != "float32":
        raise UserError(
            f"--dtype {options.dtype} is for dense vectors, and this model's are {kind}: remove it; or give a "
            "--pooling such as mean, for dense vectors of its encoder.",
            code="options-exclude-each-other",
        )


def refuse_half(out: Path) -> None:
    """Raise UserError if `out` is a link to an .npy whose own file of rows would then describe other vectors."""
    real, rows = Path(os.path.realpath(out)), beside(out)
    other = beside(real)
    if out.suffix == real.suffix == ".npy" and other.is_file() and not (rows.exists() and rows.samefile(other)):
        raise UserError(
            f"{out} is a link to {real}, whose rows are described in {other}. Give --out {real}.",
            code="output-holds-something-else",
        )
