"""An open system for BERT: raw text in; a vocabulary, a pretrained encoder and a model of your own task out."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from osbert.api.models import (
    compare,
    embed,
    evaluate,
    explain,
    export,
    load,
    predict,
    score,
)
from osbert.api.training import (
    build_corpus,
    extend_tokenizer,
    finetune,
    mix_corpora,
    pretrain,
    train_tokenizer,
)
from osbert.api.vectors import evaluate_retrieval, search
from osbert.extensions import extensions as find_extensions  # not osbert.extensions, which is the module
from osbert.processes import let_threads_sleep

let_threads_sleep()

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "build_corpus",
    "compare",
    "embed",
    "evaluate",
    "evaluate_retrieval",
    "explain",
    "export",
    "extend_tokenizer",
    "finetune",
    "load",
    "mix_corpora",
    "predict",
    "pretrain",
    "score",
    "search",
    "train_tokenizer",
]


if TYPE_CHECKING:  # what osbert_lab adds; with __getattr__, type checkers would take any misspelt name
    adapt: Callable[..., Any]
    analyse: Callable[..., Any]
    compare_encoders: Callable[..., Any]
    distil: Callable[..., Any]
    find_duplicates: Callable[..., Any]
    find_topics: Callable[..., Any]
    finetune_glue: Callable[..., Any]
    generate: Callable[..., Any]
    mine: Callable[..., Any]
    training_rows: Callable[..., Any]
else:

    def __getattr__(name: str) -> Any:
        """Return a function that another package adds to osbert by an entry point in the group `osbert.api`."""
        if extension := find_extensions("osbert.api").get(name):
            return extension.load()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names for completion, with the functions that packages add."""
    return sorted({*globals(), *find_extensions("osbert.api")})
