"""Tasks for fine-tuning: the contract, the kinds of tasks, and their common parts."""

from osbert.tasks.contract import Description, Source, Task
from osbert.tasks.loading import findings, load, note_unlabelled, with_data
from osbert.tasks.record import Inputs, Prediction, Record

__all__ = [
    "Description",
    "Inputs",
    "Prediction",
    "Record",
    "Source",
    "Task",
    "findings",
    "load",
    "note_unlabelled",
    "with_data",
]

COMPONENTS = ("kinds",)
"""The folder whose files are tasks; a file's name is its task's name."""
SYNONYMS = {
    **dict.fromkeys(("text-classification", "sequence-classification", "sentiment-analysis", "textcat"), "classify"),
    **dict.fromkeys(("multi-label", "multilabel-classification", "textcat_multilabel"), "multilabel"),
    **dict.fromkeys(("ner", "token-classification"), "tag"),
    **dict.fromkeys(("question-answering", "qa"), "span"),
    **dict.fromkeys(("cross-encoder", "reranker", "reranking"), "rerank"),
    **dict.fromkeys(("text2text-generation", "summarization", "translation", "seq2seq"), "generate"),
    "regression": "regress",
    "multiple-choice": "choose",
    "simcse": "contrastive",
}
"""What transformers' pipelines, spaCy and others call a kind -> its name here."""
