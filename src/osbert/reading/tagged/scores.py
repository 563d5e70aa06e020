"""Scores of predicted entities: precision, recall and F1 of all and of each type, as conlleval and seqeval count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from osbert.reading.tagged.schemes import EntitySpan


def entity_scores(
    predicted: Sequence[Collection[EntitySpan]], true: Sequence[Collection[EntitySpan]], types: Sequence[str]
) -> dict[str, float]:
    """Return the scores of the entities of n texts; an entity is correct if its words and its type are.

    "precision", "recall" and "f1" are micro-averages over all entities; "macro_f1" is the mean of "f1/TYPE" over
    `types`. Each type also has "precision/TYPE" and "recall/TYPE". A type with neither true nor predicted entities has
    no scores and is not part of the mean. 0 / 0 is 0.
    """
    predicted_counts: Counter[str] = Counter()
    true_counts: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for spans, wanted in zip(predicted, true, strict=True):
        predicted_counts.update(span.type for span in spans)
        true_counts.update(span.type for span in wanted)
        right.update(span.type for span in set(spans) & set(wanted))
    met = [type_ for type_ in types if predicted_counts[type_] or true_counts[type_]]
    one_by_one = {type_: _scores(right[type_], predicted_counts[type_], true_counts[type_]) for type_ in met}
    precision, recall, f1 = _scores(right.total(), predicted_counts.total(), true_counts.total())
    macro = sum(scores[2] for scores in one_by_one.values()) / max(len(met), 1)
    named = {"precision": precision, "recall": recall, "f1": f1, "macro_f1": macro}
    for index, name in enumerate(("precision", "recall", "f1")):
        named |= {f"{name}/{type_}": scores[index] for type_, scores in one_by_one.items()}
    return named


def _scores(right: int, predicted_count: int, true_count: int) -> tuple[float, float, float]:
    """Return precision, recall and F1 from counts of entities."""
    return right / max(predicted_count, 1), right / max(true_count, 1), 2 * right / max(predicted_count + true_count, 1)
