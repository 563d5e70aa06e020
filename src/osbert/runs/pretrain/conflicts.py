"""Objectives and settings of a run that exclude each other, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from osbert.models.sizes import Sizes
from osbert.objectives import Objective
from osbert.runs.pretrain.data_settings import DataSettings


def conflicts(objectives: Mapping[str, Objective], data: DataSettings, model: Sizes) -> Iterator[str]:
    """Yield a message for each pair of objectives or settings that conflict."""
    for name, objective in objectives.items():
        if data.duplicates and objective.course():
            yield (
                f"data.duplicates = {data.duplicates} repeats the masks of earlier epochs, which "
                f"{name}.later_rates or unit_from changes in the course of the run. Leave one out."
            )
    layout_names = [name for name, objective in objectives.items() if objective.lays_out()]
    if data.cross_documents and layout_names:
        yield (
            f"data.cross_documents does nothing with {layout_names[0]}, which lays out sequences of its "
            "own. Leave one out."
        )
    if data.streams and layout_names:
        yield (
            f"data.streams = true cuts the text regardless of sequences, but {layout_names[0]} lays out "
            "its own. Drop one."
        )
    if (memory := getattr(model, "memory", 0)) and not data.streams:
        yield f"model.memory is {memory}, but no sequence continues an earlier one. Set data.streams = true."
    yield from (
        _together(objectives, layout_names) if data.curriculum == "together" else _in_turn(objectives, data, model)
    )


def _together(objectives: Mapping[str, Objective], layout_names: list[str]) -> Iterator[str]:
    """Yield the conflicts of objectives that are trained on the same sequences; `layout_names`: those that lay them
    out."""
    for other in layout_names[1:]:
        # The loader asks the first alone: no sequence would have a target of the other.
        yield (
            f"{layout_names[0]} and {other} both lay out sequences. Leave one out, or set data.curriculum "
            '= "continual".'
        )
    kinds = {name: type(objective) for name, objective in objectives.items()}
    hiding = [name for name, kind in kinds.items() if kind.corrupts() and not kind.before_noise]
    for name in (name for name, kind in kinds.items() if kind.alone and len(hiding) > 1):
        others = [other for other in hiding if other != name]
        yield f"{name} fills all masks of a sequence, and {others[0]} hides pieces too. Leave one out."
    noisy: list[str] = []
    for name, kind in kinds.items():
        if kind.before_noise and noisy:
            yield f"{name} would take what {noisy[0]} has hidden for text. Name {name} before {noisy[0]} in objectives."
        elif not kind.before_noise and kind.corrupts():
            noisy.append(name)


def _in_turn(objectives: Mapping[str, Objective], data: DataSettings, model: Sizes) -> Iterator[str]:
    """Yield what excludes a curriculum, in which each step trains one objective."""
    if len(objectives) < 2:
        yield f'data.curriculum = "{data.curriculum}" divides the steps among objectives, but there is only one.'
    if data.streams:
        yield f'data.curriculum = "{data.curriculum}" is not for streams, which one objective reads. Drop one.'
    tasks, wanted = getattr(model, "tasks", 0), len(objectives)
    if 0 < tasks < wanted:
        yield f"model.tasks is {tasks}, but there are {wanted} objectives. Set model.tasks = {wanted}, or name fewer."
