"""An open system for BERT: raw text in; a vocabulary, a pretrained encoder and a model of your own task out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osbert.inference.engine import Engine

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "export", "load"]


def load(folder: str | Path, *, trust: bool = False, verify: bool = True) -> Engine:
    """Load a run folder, or a Hugging Face BERT folder, and return an Engine with `.embed(texts)` and
    `.predict(texts)`.

    `trust`: import the code that the folder's recipe.toml names. `verify`: compare a run's files with their hashes in
    run.json. Raises osbert.errors.UserError when the folder is not a model, when a file is damaged, and when it names
    code without `trust`.
    """
    from osbert.inference.engine import (
        load as load_engine,  # torch takes seconds to import: only when a model is wanted
    )
    from osbert.interop.opening import Opening

    return load_engine(folder, opening=Opening(trust=trust, verify=verify))


def evaluate(
    run: str | Path,
    *,
    data: str | Path,
    split: str = "dev",
    watch: Callable[[Any], None] | None = None,
    **options: Any,
) -> dict[str, float]:
    """Return the scores of a fine-tuned run on data with labels, by name.

    `data`: a file, all rows of which count, or a folder, of which `split` does: "train", "dev" or "test". `options`:
    those of `osbert evaluate`, such as text and label, the columns; trust and verify are as for `load`. `watch` is
    called with each event, such as a Notice of the rows that are left out. Raises osbert.errors.UserError, before
    anything is computed, with every label that the run does not know.

    >>> scores = osbert.evaluate("run", data="more.csv")
    >>> scores["accuracy"]
    1.0
    """
    from osbert import recipe
    from osbert.runs import contract
    from osbert.runs import evaluate as runs  # lazily, as all else here: importing osbert is quick

    chosen = recipe.settings(runs.EvaluationOptions, options)
    evaluation = runs.evaluate(
        Path(run),
        data=Path(data),
        split=split,
        options=chosen.file,
        opening=chosen.opening,
        watch=watch or contract.ignore,
    )
    return evaluation.metrics


def export(
    run: str | Path,
    *,
    out: str | Path | None = None,
    watch: Callable[[Any], None] | None = None,
    **settings: Any,
) -> Path:
    """Export a run, or an encoder, as ONNX; return the folder, `out` or by default RUN-onnx or RUN-int8.

    `load`, and osbert's verbs, take the folder in place of the run. `settings`: int8 (weights of a byte each),
    tolerance (how much the metric may drop), data (labelled rows to compare on, in place of the run's development
    rows), unchecked (compare nothing), and how a file is read, as for `evaluate`. `watch` is called with each event,
    the comparison of both among them. Needs the extra onnx. Raises osbert.errors.UserError where the run has no form
    in ONNX or the export is not as good as the run; nothing is then written.

    >>> folder = osbert.export("run", out="onnx", data="more.csv", tolerance=0.5)
    >>> osbert.load(folder).predict(["the good film"])[0].value
    'pos'
    """
    from osbert import recipe
    from osbert.runs import contract
    from osbert.runs.export import run as runs

    chosen = recipe.settings(runs.ExportOptions, settings)
    exported = runs.export(
        Path(run),
        out=None if out is None else Path(out),
        settings=chosen.settings,
        options=chosen.file,
        opening=chosen.opening,
        watch=watch or contract.ignore,
    )
    return exported.folder
