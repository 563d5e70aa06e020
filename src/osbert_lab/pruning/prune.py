"""Prune a fine-tuned run: measure the heads, remove the least important ones, and score both models.

Michel et al. 2019, "Are Sixteen Heads Really Better than One?". Heads are ranked on training rows; the development
rows, on which both models are scored, have no part in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

import osbert
from osbert.errors import UserError
from osbert.files import require_free, whole_folder, write_json
from osbert.inference.engine import Engine, load
from osbert.interop.conversion import ModelParts, model_of, open_any, write_model_as
from osbert.interop.hub import default_out
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.models.contract import Backbone, Learner
from osbert.models.families.transformer import Transformer
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.export import ExportComparison, Side, compare_predictions
from osbert.runs.file_options import LabelledOptions
from osbert.tasks import Record, Task
from osbert.tasks import load as load_rows
from osbert.terminal import format_count, in_columns, in_megabytes
from osbert.training.run_folder import FACTS, RunFolder
from osbert_lab.analysis.importance import LEAST, head_slopes, layer_normalised
from osbert_lab.analysis.kinds.task_importance import TaskImportance
from osbert_lab.analysis.model import AnalysedModel
from osbert_lab.analysis.sample import punctuation
from osbert_lab.distillation.layers import fewer_layers, select_layers
from osbert_lab.pruning.heads import choose_heads, keep_heads, obstacle
from osbert_lab.pruning.settings import PruneSettings


@dataclass(frozen=True, kw_only=True)
class PrunedRun:
    """A pruned run: its folder, how many heads and layers it has, and both models on the development rows."""

    reported: ClassVar[tuple[str, ...]] = ("folder", "heads", "layers", "criterion", "whole", "pruned")

    folder: Path
    heads: int
    layers: int
    comparison: ExportComparison

    @property
    def criterion(self) -> str:
        """The name of the compared score."""
        return self.comparison.criterion

    @property
    def whole(self) -> Side:
        """The score, seconds and bytes of the run."""
        return self.comparison.run

    @property
    def pruned(self) -> Side:
        """The score, seconds and bytes of the pruned run."""
        return self.comparison.exported

    def lines(self) -> Iterator[str]:
        """Yield a table of both."""
        sides = (self.whole, self.pruned)
        count = len(self.whole.outputs)
        yield self.comparison.what
        yield from in_columns(
            [
                ("", "whole", "pruned"),
                (self.criterion, *(f"{side.score:.4f}" for side in sides)),
                ("sequences a second", *(f"{count / side.seconds:,.1f}" for side in sides)),
                ("weights", *(in_megabytes(side.size) for side in sides)),
            ]
        )


def prune(
    run: Path,
    *,
    settings: PruneSettings,
    out: Path | None = None,
    options: LabelledOptions | None = None,
    opening: Opening = CAREFUL,
    watch: Watch = ignore,
) -> PrunedRun:
    """Write a run without some of its heads or layers into the folder `out`, by default RUN-pruned.

    `options`: how settings.data is read. Raises UserError, before anything is written, for a run that cannot be pruned
    and for a share that removes nothing.
    """
    settings.check()
    out = out or default_out(run, "-pruned")
    with claim(out) as claimed:
        require_free(claimed)
        model = model_of(open_any(run, opening))
        if model.task is None:
            raise UserError(
                f"{run} is not fine-tuned: it has no task whose loss could rank heads, and no score.",
                code="unsupported-model",
            )
        task, rows = _rows(run, model.task, settings.data, options or LabelledOptions())
        whole = load(run, device="cpu", opening=opening)
        backbone = model.learner.backbone
        if settings.layers:
            backbone = _without_layers(run, backbone, settings.layers, watch)
        if settings.heads:
            learner = _learner(model, backbone)
            backbone = _without_heads(run, learner, whole, task, rows["train"], settings.heads, watch)
        with whole_folder(claimed) as folder:
            write_model_as(replace(model, learner=_learner(model, backbone)), folder, "osbert")
            facts = {"osbert": osbert.__version__, "command": "prune", "source": str(run)}
            chosen = {name: str(value) for name, value in asdict(settings).items() if value}
            write_json(folder / FACTS, {**facts, "settings": chosen})
            pruned = load(folder, device="cpu", opening=opening)
            comparison = compare_predictions(whole, pruned, task, rows["dev"])
            seen = RunFolder(run).facts.get("finished", {}).get("training_texts", "")
            RunFolder(folder).finish({task.criterion: comparison.exported.score, "training_texts": seen})
    sizes = backbone.architecture
    return PrunedRun(folder=out, heads=getattr(sizes, "heads", 0), layers=sizes.layers, comparison=comparison)


def _rows(run: Path, task: Task, data: Path | None, options: LabelledOptions) -> tuple[Task, dict[str, list[Record]]]:
    """Return the training and development rows, and the task that reads them. Raises UserError if they are missing."""
    if data is not None:
        task = task.source.switch_data(data, options.as_settings(task))
    elif not task.data or not Path(task.data).exists():
        raise UserError(
            f"The data that {run} was fine-tuned on ({task.data or 'unknown'}) is missing. Give labelled rows: --data.",
            code="missing-option",
        )
    return load_rows(task, ("train", "dev"), fit=False)


def _learner(model: ModelParts, backbone: Backbone) -> Learner:
    """Return the run's head on a backbone: itself if it is the run's own, else a copy."""
    task = model.task
    assert task is not None
    head = model.learner.heads[task.name]
    if backbone is not model.learner.backbone:
        state, head = head.state_dict(), task.head(backbone)
        head.load_state_dict(state)
    return Learner(backbone, {task.name: head}).eval()


def _without_layers(run: Path, backbone: Backbone, fraction: float, watch: Watch) -> Backbone:
    layers = backbone.architecture.layers
    removed = round(fraction * layers)
    if not removed:
        raise UserError(
            f"--layers {fraction:g} removes none of {layers} layers: give {1 / layers:.2g} or more.",
            code="invalid-value",
        )
    try:
        smaller = fewer_layers(backbone, layers - removed)
    except ValueError as error:
        raise UserError(f"{run}: {error}. Give another --layers.", code="invalid-value") from error
    retained = ", ".join(str(layer + 1) for layer in select_layers(backbone, layers - removed))
    watch(Notice(f"layers {retained} of {layers} stay"))
    return smaller


def _without_heads(
    run: Path, learner: Learner, engine: Engine, task: Task, records: Sequence[Record], fraction: float, watch: Watch
) -> Backbone:
    """Return the encoder of a learner without the least important heads of each layer."""
    backbone = learner.backbone
    known = AnalysedModel(learner=learner, packer=engine.packer, signs=punctuation(engine.tokenizer), seed=0, task=task)
    if reason := obstacle(backbone) or TaskImportance.obstacle(known):
        raise UserError(f"Heads of {run} cannot be removed: {reason}. Leave --heads out.", code="unsupported-model")
    assert isinstance(backbone, Transformer)
    heads = backbone.architecture.heads
    removed = min(round(fraction * heads), heads - 1)
    if not removed:
        raise UserError(
            f"--heads {fraction:g} removes none of the {heads} heads of a layer: give {1 / heads:.2g} or more"
            f"{', or --layers' if heads == 1 else ''}.",
            code="invalid-value",
        )
    labelled = [record for record in records if not task.lacks(record)]
    if len(labelled) < LEAST:
        raise UserError(
            f"Heads are ranked on {LEAST} labelled rows or more, and there are {len(labelled)}. Give others: --data.",
            code="too-little-data",
        )
    measure = TaskImportance()
    sequences = measure.sequences(known, labelled)
    slopes = head_slopes(known, sequences, measure.loss, lambda tokens: None)
    retained = choose_heads(backbone, layer_normalised(slopes.mean), removed)
    watch(Notice(f"heads ranked on {format_count(len(sequences), 'training row')}; {heads - removed} of {heads} stay"))
    for number, names in enumerate(retained, start=1):
        gone = ", ".join(str(head + 1) for head in range(heads) if head not in names)
        watch(Notice(f"  layer {number} loses {gone}"))
    try:
        return keep_heads(backbone, retained)
    except ValueError as error:
        raise UserError(f"{run}: {error}. Give another --heads.", code="invalid-value") from error
