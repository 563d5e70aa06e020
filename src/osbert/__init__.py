"""An open system for BERT: raw text in; a vocabulary, a pretrained encoder and a model of your own task out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osbert.inference.engine import Engine
    from osbert.runs.finetune.result import FinetuneRun
    from osbert.tasks import Task

__version__ = "0.1.0"
__all__ = ["__version__", "finetune", "load"]


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


def finetune(
    task: str | Task | Sequence[str | Task], /, *, model: str | Path, data: Any, out: str | Path, **settings: Any
) -> FinetuneRun:
    """Fine-tune an encoder on a task, or on several that share it, into the run folder `out`; return the run.

    `task`: a name such as "classify" or "sst2", a Task, or a list of these. `data`: a file, or a folder with files
    called train.*, dev.* and test.*; of several tasks a mapping from their names, or a folder that holds those of each.
    `settings`: any setting of `osbert finetune`, by its last part (epochs=4, learning_rate=3e-5, text="body") or its
    full name (**{"training.epochs": 4}); of several tasks one's own has its name before it. `from_scratch=True` draws
    new weights; `trust` and `verify` are those of `load`.

    Nothing is printed. `watch`, one of the settings, is called with each event (osbert.runs.finetune.events): a Notice,
    each step's Progress, each Epoch. A run that was stopped (Ctrl-C: KeyboardInterrupt, after a checkpoint) goes on
    when the same call is made again, and ends in the same weights.

    The run has `metrics`, the best epoch's scores on the development rows; `errors`, the wrong predictions for them,
    the worst first; `predict(texts)`; and `model`, what `load` returns. Raises osbert.errors.UserError for what the
    user can mend, such as a misspelt setting, a label that is not known, or another run in `out`.

    A tiny model with random weights learns which of two words stands in a text:

    >>> import tempfile
    >>> from osbert.interop.huggingface.folders import write_model
    >>> from osbert.interop.tokenizer_files import write_tokenizer
    >>> from osbert.models.architecture import Architecture
    >>> from osbert.models.contract import Learner
    >>> from osbert.text.tokenizer import SPECIALS, Tokenizer
    >>> scratch = tempfile.TemporaryDirectory()
    >>> folder = Path(scratch.name)
    >>> words = Tokenizer([*SPECIALS, "a", "good", "bad", "film", "the", "play"])
    >>> sizes = Architecture(layers=1, heads=2, width=16, vocabulary=len(words), length=16)
    >>> write_model(Learner(sizes.build(), {}), folder / "encoder")
    >>> write_tokenizer(words, folder / "encoder", length=16)
    >>> rows = "a good film,pos\\nbad film,neg\\nthe bad play,neg\\ngood,pos\\n" * 25
    >>> _ = (folder / "reviews.csv").write_text("text,label\\n" + rows)
    >>> run = finetune(
    ...     "classify", model=folder / "encoder", data=folder / "reviews.csv", out=folder / "run",
    ...     epochs=8, batch=8, learning_rate=1e-2,
    ... )
    >>> run.metrics["accuracy"], run.errors
    (1.0, [])
    >>> [prediction.value for prediction in run.predict(["the bad film", "a good play"])]
    ['neg', 'pos']
    >>> scratch.cleanup()
    """
    from osbert.runs.finetune.finetune import finetune as run

    return run(task, model=model, data=data, out=out, **settings)
