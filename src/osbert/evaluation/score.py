"""Scores a model on records: predictions in the records' order, and the task's metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from osbert.data.example import Example, are_mostly_unknown
from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.evaluation.forward import TOKENS, gather, outputs
from osbert.models.contract import Learner

if TYPE_CHECKING:
    from osbert.tasks import Prediction, Record, Task

TOGETHER = 2**18
"""Approximate number of tokens that are encoded together: enough to find many sequences of similar lengths."""
Encoded: TypeAlias = "tuple[Record, Sequence[Example]]"
"""A record and its sequences."""

CLASSES, LOWEST = 100, 20
"""Most classes whose F1 is printed, and how many of more: those with the lowest one."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """The predictions of a model for some records, and their scores."""

    metrics: dict[str, float]
    predictions: list[Prediction]


def encode_records(task: Task, records: Iterable[Record], packer: Packer) -> Iterator[Encoded]:
    """Yield records with their sequences, encoded without labels."""
    for record in records:
        yield record, task.encode(replace(record, label=None), packer)


def decode_records(
    records: Iterable[Encoded],
    *,
    outputs: Callable[[Sequence[Example]], Sequence[Any]],
    decode: Callable[..., Prediction],
    unknown: int = -1,
) -> list[Prediction]:
    """Return a prediction for each record; the callable `outputs` computes the model on sequences.

    `unknown`: the id of the unknown piece, -1 if there is none.
    """
    predictions = []
    for chunk in gather(records, TOGETHER, lambda encoded: sum(map(len, encoded[1]))):
        rows = iter(outputs([example for _, group in chunk for example in group]))
        lacking = are_mostly_unknown([group for _, group in chunk], unknown)
        for (record, group), lacks in zip(chunk, lacking, strict=True):
            prediction = decode([next(rows) for _ in group], record, group)
            truncated = sum(example.truncated for example in group)
            predictions.append(replace(prediction, truncated=truncated, unknown=lacks))
    return predictions


def refuse_long(task: Task, records: Sequence[Record], packer: Packer) -> None:
    """Raise a UserError that lists the records that are too long, if the task does not allow truncation."""
    from osbert.tasks.tables import note_long

    problems = Problems(heading="These texts are too long (--long error)")
    note_long(task, records, packer, problems)
    problems.stop_if_any()


def predict(
    learner: Learner,
    task: Task,
    records: Sequence[Record],
    packer: Packer,
    encoded: Iterable[Encoded] | None = None,
    *,
    tokens: int = TOKENS,
) -> list[Prediction]:
    """Return a prediction for each record. Labels are ignored. `encoded`: the result of `encode_records`, if known."""
    head = learner.heads[task.name]
    computed: Callable[[Sequence[Example]], Sequence[Any]]
    if task.form == "text":
        computed = partial(task.write, learner, packer.tokenizer)
    else:
        computed = partial(outputs, learner, task.name, tokens=tokens, per_token=task.per_token)
    encoded = encode_records(task, records, packer) if encoded is None else encoded
    return decode_records(encoded, outputs=computed, decode=task.decode_with(head.decoding_values()))


def score(
    learner: Learner,
    task: Task,
    records: Sequence[Record],
    packer: Packer,
    encoded: Iterable[Encoded] | None = None,
) -> Score:
    """Return predictions and metrics for development records, already checked with `refuse_long`.

    The predictions are those of the task tuned on these records (`Task.at_best`). `encoded`: as in `predict`. Raises
    UserError if a record has no label.
    """
    require_labels(records)
    predictions = task.at_best(predict(learner, task, records, packer, encoded), records)
    return Score(metrics=task.metrics(predictions, records), predictions=predictions)


def constant_answer(task: Task, predictions: Sequence[Prediction], records: Sequence[Record]) -> str:
    """Return the answer of all records (`Description.only_answer`) if it is the same and not always right, else "".

    Fine-tuning on small sets sometimes collapses in this way. Tasks that answer by a rule do so on purpose: "".
    """
    answer = task.description.only_answer(predictions, records) if task.weighed and predictions else ""
    return answer if answer and any(task.outcome(*pair).error for pair in zip(predictions, records)) else ""


def class_scores(task: Task, metrics: Mapping[str, float]) -> dict[str, str]:
    """Format the F1 of each class of a task; "-" for a class that neither labels nor predictions have.

    Of more than CLASSES classes, those with the lowest F1 only.
    """
    scores = {name: metrics.get(f"f1/{name}") for name in task.classes}
    if len(scores) > CLASSES:
        scored = {name: score for name, score in scores.items() if score is not None}
        scores = {name: scored[name] for name in sorted(scored, key=scored.__getitem__)[:LOWEST]}
    return {name: "-" if score is None else f"{score:.4f}" for name, score in scores.items()}


def classes_left_out(task: Task, metrics: Mapping[str, float]) -> str:
    """Describe the classes that `class_scores` leaves out; "" if it has all."""
    if len(task.classes) <= CLASSES:
        return ""
    scored = sum(f"f1/{name}" in metrics for name in task.classes)
    absent = f", and {len(task.classes) - scored:,} are in none of these rows" if scored < len(task.classes) else ""
    return f"the lowest {min(LOWEST, scored):,} of {scored:,} classes{absent}"


def require_labels(records: Sequence[Record]) -> None:
    """Raise a UserError that lists the records without a label."""
    from osbert.tasks import note_unlabelled

    problems = Problems(heading="These records cannot be scored")
    note_unlabelled(records, problems)
    problems.stop_if_any()
