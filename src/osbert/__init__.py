"""An open system for BERT: raw text in; a vocabulary, a pretrained encoder and a model of your own task out."""

from osbert.api.models import (
    analyse,
    compare,
    compare_encoders,
    embed,
    evaluate,
    explain,
    export,
    generate,
    load,
    predict,
    score,
    training_rows,
)
from osbert.api.training import (
    adapt,
    build_corpus,
    distil,
    extend_tokenizer,
    finetune,
    finetune_glue,
    mix_corpora,
    pretrain,
    train_tokenizer,
)
from osbert.api.vectors import find_duplicates, find_topics, search
from osbert.openmp import let_threads_sleep

let_threads_sleep()

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "adapt",
    "analyse",
    "build_corpus",
    "compare",
    "compare_encoders",
    "distil",
    "embed",
    "evaluate",
    "explain",
    "export",
    "extend_tokenizer",
    "find_duplicates",
    "find_topics",
    "finetune",
    "finetune_glue",
    "generate",
    "load",
    "mix_corpora",
    "predict",
    "pretrain",
    "score",
    "search",
    "train_tokenizer",
    "training_rows",
]
