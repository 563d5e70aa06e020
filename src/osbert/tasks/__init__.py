"""What a model is fine-tuned for: the contract, the kinds of task, the named data sets, and what they stand on."""

from osbert.tasks.contract import Task
from osbert.tasks.loading import load, note_unlabelled
from osbert.tasks.record import Inputs, Prediction, Record

__all__ = ["Inputs", "Prediction", "Record", "Task", "load", "note_unlabelled"]

COMPONENTS = ("kinds", "sets")
"""The folders whose files are tasks, each found by its file name."""
