"""Pretraining examples as text: marks at masked positions, and rates of masks, measured and set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table
from rich.text import Text

from osbert.data.corrupt import word_bounds
from osbert.data.example import Example
from osbert.objectives import Objective
from osbert.objectives.mlm import MaskedLanguage
from osbert.text.file_tokenizer import AnyTokenizer

STYLES = {"[MASK]": "bold yellow", "random": "bold red", "same": "bold green"}
"""Styles of the three replacements at a chosen position."""


@dataclass(frozen=True, kw_only=True)
class MaskRates:
    """Rates over some examples; fractions are of the chosen positions unless stated otherwise."""

    length: float
    """Mean number of tokens in a sequence."""
    chosen: float
    """Chosen positions as a fraction of all tokens."""
    mask: float
    random: float
    same: float
    cut: float
    """Partly chosen words, as a fraction of the words of several pieces with any piece chosen."""


def show_masks(example: Example, tokenizer: AnyTokenizer, objectives: Mapping[str, Objective]) -> Text:
    """Return a sequence as the model sees it; where it predicts a piece an arrow points to that piece.

    A dot joins pieces of one word. The source of a decoder stands before it. Labels of `objectives` that are not pieces
    follow the sequence in words.
    """
    truths: dict[int, int] = {}
    remarks: list[str] = []
    for name, target in example.targets.items():
        objective = objectives.get(name)  # None: a companion's, which are the pieces of masks
        masked = isinstance(objective, MaskedLanguage) and objective.pieces == objective.name
        if target.index is not None and (objective is None or objective.answers == "pieces" or masked):
            truths |= dict(zip(target.index.tolist(), target.labels.tolist()))
        elif objective and (target.index is None or type(objective).in_words is not Objective.in_words):
            remarks.append(f"   ({name}: {objective.in_words(target.labels)})")
    text = Text()
    if example.source is not None:
        text.append_text(show_masks(example.source, tokenizer, objectives)).append("  =>  ", style="bold")
    for position, index in enumerate(example.ids.tolist()):
        joined = position > 0 and not (
            example.words[position] or example.special[position] or example.special[position - 1]
        )
        text.append("·" if joined else " " if position else "", style="dim")
        piece = tokenizer.vocabulary[index]
        if position in truths:
            kind = "[MASK]" if index == tokenizer.mask else "same" if index == truths[position] else "random"
            text.append(f"{piece}←{tokenizer.vocabulary[truths[position]]}", style=STYLES[kind])
        else:
            text.append(piece.removeprefix("##") if joined else piece, style="dim" if example.special[position] else "")
    return text.append("".join(remarks), style="bold")


def count_rates(examples: Sequence[Example], name: str, tokenizer: AnyTokenizer) -> MaskRates:
    """Return the rates over examples of the masks whose original pieces are the target `name`."""
    tokens = sum(map(len, examples))
    input_ids = np.concatenate([example.ids[_positions_to_predict(example, name)] for example in examples])
    labels = np.concatenate([example.targets[name].labels for example in examples])
    mask, same = input_ids == tokenizer.mask, input_ids == labels
    cut = np.concatenate([_cut(example, name) for example in examples])
    return MaskRates(
        length=tokens / len(examples),
        chosen=len(labels) / tokens,
        mask=float(mask.mean()),
        random=float((~mask & ~same).mean()),
        same=float((same & ~mask).mean()),
        cut=float(cut.mean()) if len(cut) else 0.0,
    )


def legend() -> Text:
    """Return the legend of the marks."""
    parts: Iterable[tuple[str, str]] = (
        ("[MASK]←true piece", STYLES["[MASK]"]),
        ("another←true piece", STYLES["random"]),
        ("same←same", STYLES["same"]),
    )
    text = Text("At the positions to predict, what the model sees ← what it must say: ")
    for index, (words, style) in enumerate(parts):
        text.append(", " if index else "").append(words, style=style)
    return text.append(". A dot joins the pieces of a word.")


def rates_table(
    rates: MaskRates | None,
    examples: Sequence[Example],
    objectives: Mapping[str, Objective],
    *,
    title: str,
    length: int,
) -> Table:
    """Return a table of the measured rates of masks, if any, and those in the settings, with those of the objectives.

    `length`: the most tokens in a sequence.
    """
    table = Table(title=title, title_justify="left")
    if rates:
        table.caption = Text("The number of chosen positions is rounded to whole pieces in each sequence.", style="dim")
    table.caption_justify = "left"
    table.add_column("rate")
    table.add_column("counted", justify="right")
    table.add_column("expected", justify="right")
    for row in _rows(rates, objectives, length) if rates else ():
        table.add_row(*row)
    for objective in objectives.values():
        for row in objective.rates(examples):
            table.add_row(*row)
    return table


def _positions_to_predict(example: Example, name: str) -> np.ndarray:
    index = example.targets[name].index
    assert index is not None
    return index


def _cut(example: Example, name: str) -> np.ndarray:
    """Return for each word of several pieces with any piece chosen whether some piece is not chosen."""
    firsts, ends = word_bounds(example.words, example.special)
    # Cumulative number of chosen positions: differences at word bounds count those within each word.
    before = np.concatenate([[0], np.cumsum(np.bincount(_positions_to_predict(example, name), minlength=len(example)))])
    hits, sizes = before[ends] - before[firsts], ends - firsts
    cut: np.ndarray = (hits < sizes)[(sizes > 1) & (hits > 0)]
    return cut


def _rows(rates: MaskRates, objectives: Mapping[str, Objective], length: int) -> Iterator[tuple[str, str, str]]:
    masked = next(part for part in objectives.values() if isinstance(part, MaskedLanguage))
    limit = f", at most {masked.limit} a sequence" if masked.limit else ""
    yield "tokens a sequence, mean", f"{rates.length:.1f}", f"at most {length}"
    yield "chosen, of all tokens", f"{rates.chosen:.2%}", f"{masked.rate:.2%}{limit}"
    yield "  shown as [MASK]", f"{rates.mask:.2%}", f"{masked.mask:.2%}"
    yield "  shown as a random piece", f"{rates.random:.2%}", f"{masked.random:.2%}"
    yield "  shown as it is", f"{rates.same:.2%}", f"{max(0.0, 1 - masked.mask - masked.random):.2%}"
    yield "words cut: chosen in part", f"{rates.cut:.2%}", "any" if masked.unit == "pieces" else "0.00%"
