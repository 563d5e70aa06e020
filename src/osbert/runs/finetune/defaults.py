"""Defaults for batch, epochs, learning rate and few-shot learning, by the rows; a resumed run keeps its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from osbert import recipe
from osbert.errors import UserError
from osbert.interop.folder import Folder, open_folder
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.finetune.few_shot import with_sentences
from osbert.runs.finetune.plan import LEFT_OPEN, LENGTH, FinetunePlan
from osbert.runs.finetune.settings import ScoreSettings
from osbert.runs.pretrained_tokens import pretrained_tokens
from osbert.runs.study.search import listed
from osbert.tasks import Record, Task
from osbert.terminal import counted
from osbert.training.run_folder import RunFolder

RATE_NAME = "optimizer.learning_rate"
STEPS = 200
"""Fewest optimiser steps that the defaults aim at. With fewer, a classifier may not have learnt anything."""
BATCH, EPOCHS, RATE = 8, 10, 5e-5
"""Smallest batch, most epochs, and the learning rate for few rows."""
PLACE_STEPS, PLACE_EPOCHS = 600, {"tokens": 50, "span": 25}
"""Fewest steps and most epochs of published encoders where labels have places in the text, by the tasks' form: each
word is learnt from, so more passes over few rows still teach, where one class a row does not (docs/results.md)."""
NARROW, NARROW_RATE = 512, 1e-4
"""Widest encoder that has this rate, measured with a width of 384: with the paper's batch, which is four times that of
few rows, and for labels with places. Small models take higher rates than large ones (google-research/bert's README
lists 3e-4 to 3e-5 for them, BERT's paper 5e-5 to 2e-5)."""
YOUNG = 100_000_000
"""Pretraining tokens below which an encoder is young. Minutes on a CPU give a few million. Between 8 million and this
bound nothing was measured (docs/results.md)."""
FEW_ROWS = 100
"""Number of single texts below which few-shot learning is chosen, if the model allows it."""
FEW_PAIRS, FEW_SCORED_PAIRS = 2000, 6000
"""Number of pairs, and of pairs with a number each, below which a linear layer compares the vectors of a sentence
encoder. With 1,000 pairs it beat fine-tuning on all sets, with 2,500 not on MNLI, and with all 5,749 scored pairs of
STS-B it still did (docs/results.md)."""
CONTRASTIVE = {"training.batch": 16, "training.epochs": 10, "optimizer.learning_rate": 5e-5}
"""Defaults of contrastive tuning. For long texts the batch is BATCH (`_contrastive`)."""
CHOOSING = 200
"""Number of development rows below which the last epoch is kept: of fewer the best epoch is much chance
(docs/results.md). Between 100 and this bound nothing was measured."""
MEASURED = 1000
"""Number of rows whose lengths are measured."""


@dataclass(frozen=True, kw_only=True)
class TrainingDemand:
    """The training that an encoder needs for a task: fewest steps, most epochs, and learning rates.

    `rate`: for few rows. `usual_rate`: for enough rows; None for the paper's. `reason`: why it is not the paper's, ""
    if it is. `young`: whether the encoder was pretrained for minutes; then both rates apply whatever else is given.
    """

    steps: int = STEPS
    epochs: int = EPOCHS
    rate: float = RATE
    usual_rate: float | None = None
    reason: str = ""
    young: bool = False

    @classmethod
    def of(cls, plan: FinetunePlan) -> TrainingDemand:
        """Return the demand of a plan's encoder, by its pretraining tokens if known, and by the tasks."""
        tokens, forms = pretrained_tokens(plan.model), {task.form for task in plan.tasks}
        # 0 if a task has labels without places.
        placed = min(PLACE_EPOCHS.get(form, 0) for form in forms)
        if tokens is not None and tokens < YOUNG:
            # A young encoder knows little that a high rate could destroy, and has to learn most of the task.
            reason = f"the encoder saw only {tokens / 1e6:.2g} million tokens in pretraining"
            epochs = placed if forms == {"tokens"} else 20
            return cls(steps=600, epochs=epochs, rate=1e-3, usual_rate=1e-3, reason=reason, young=True)
        demand = cls(steps=PLACE_STEPS, epochs=placed) if placed else cls()
        if not plan.open.issuperset(LENGTH):
            return demand
        width = open_folder(plan.model, plan.opening.again).architecture.width
        if width > NARROW:
            return demand
        rate = NARROW_RATE if placed else RATE
        return replace(demand, rate=rate, usual_rate=NARROW_RATE, reason=f"the encoder is narrow, {width} wide")


PUBLISHED = TrainingDemand()


def small_data(
    steps: Callable[[int], int], *, batch: int, epochs: int, need: TrainingDemand = PUBLISHED
) -> tuple[int, int]:
    """Return the batch and epochs for at least `need.steps` steps, or for as many as BATCH and the most epochs allow.

    `steps(batch)`: steps per epoch. The batch is halved first, since that gives more steps without more passes over the
    rows.

    >>> small_data(lambda batch: -(-1000 // batch), batch=32, epochs=3)
    (8, 3)
    >>> small_data(lambda batch: -(-200 // batch), batch=32, epochs=3)
    (8, 8)
    """
    while batch > BATCH and epochs * steps(batch) < need.steps:
        batch = max(BATCH, batch // 2)
    return batch, max(epochs, min(need.epochs, -(-need.steps // steps(batch))))


def steps_per_epoch(task: Task, records: Sequence[Record]) -> Callable[[int], int]:
    """Return a function from the batch to the steps per epoch; records that the task cannot learn from do not count."""
    teaching = [record for record in records if not task.lacks(record)]
    return lambda batch: max(1, -(-len(teaching) // task.per_step(batch, teaching)))


def fill_open(
    plan: FinetunePlan,
    training: Sequence[Sequence[Record]],
    development: Sequence[Sequence[Record]],
    out: Path,
    watch: Watch = ignore,
) -> FinetunePlan:
    """Return the plan with all settings that the user left open chosen by the training and the development rows.

    See `fill_defaults` and `keep_last_of_few`.
    """
    return keep_last_of_few(fill_defaults(plan, training, out, watch), development, out, watch)


def fill_defaults(
    plan: FinetunePlan, records: Sequence[Sequence[Record]], out: Path, watch: Watch = ignore
) -> FinetunePlan:
    """Return the plan with defaults for the settings that the user left open; report them with the reason.

    Defaults depend on the number of rows only if both batch and epochs are open: a user who gives one of them expects
    the paper's value of the other. A run that is resumed in the folder `out` keeps its settings. `records`: the
    training rows of each task; an epoch has the steps of all tasks.
    """
    chosen, reason = _choice(plan, records, out)
    plan = plan.changed(chosen)
    if plan.training.few_shot == "linear":
        plan = replace(plan, tasks=tuple(task.by_vectors(own) for task, own in zip(plan.tasks, records)))
    table = plan.table()
    said = {name: table[name.partition(".")[0]][name.partition(".")[2]] for name in _shown(plan)}
    said |= dict.fromkeys(plan.comparison.varied, "searched")
    watch(Notice(f"{listed(said)}: {reason}"))
    return plan


def keep_last_of_few(
    plan: FinetunePlan, development: Sequence[Sequence[Record]], out: Path, watch: Watch = ignore
) -> FinetunePlan:
    """Return the plan with the last epoch kept if a task has too few development rows to choose one by.

    It is unchanged if the user gave --keep or --patience, if there is one score only, and for several tasks. A run that
    is resumed in the folder `out` keeps its setting.
    """
    if "scores.keep" not in plan.open:
        return plan
    facts = RunFolder(out).facts
    if facts.get("command") == "finetune":
        before = {"keep": facts.get("settings", {}).get("scores", {}).get("keep", "best")}
        scores = recipe.build(ScoreSettings, recipe.as_table(plan.scores) | before, where="The run folder")
        return replace(plan, scores=scores)
    count = min(map(len, development))
    if count >= CHOOSING or len(plan.tasks) > 1 or not plan.scores.chooses(plan.training):
        return plan
    few = f"{counted(count, 'development row')} {'is' if count == 1 else 'are'} too few to choose an epoch"
    watch(Notice(f"keep last: {few}; --keep best chooses all the same, --dev FILE gives others"))
    return replace(plan, scores=replace(plan.scores, keep="last"))


def _shown(plan: FinetunePlan) -> tuple[str, ...]:
    """Return the names of the settings to report."""
    few_shot = plan.training.few_shot
    if few_shot == "none":
        return (*LENGTH, "optimizer.learning_rate")
    return ("training.few_shot",) if few_shot == "linear" else ("training.few_shot", *CONTRASTIVE)


def _choice(plan: FinetunePlan, records: Sequence[Sequence[Record]], out: Path) -> tuple[dict[str, Any], str]:
    """Return the chosen settings by their dotted names ({} to keep those of the plan), and the reason."""
    if stored := _stored(out, plan.open):
        return stored, f"kept from the run in {out}"
    if plan.training.few_shot != "none":
        own = {} if plan.training.few_shot == "linear" else _contrastive(plan, records)
        chosen = {name: value for name, value in own.items() if name in plan.open}
        return {"training.few_shot": plan.training.few_shot, **chosen}, "few-shot learning, as given, " + (
            "and what goes with it" if chosen else "whatever the number of rows"
        )
    need = TrainingDemand.of(plan)
    if not plan.open.issuperset(LENGTH):
        rate = {RATE_NAME: need.usual_rate} if need.young and RATE_NAME in plan.open else {}
        reason = "as given, and the defaults where nothing is given, whatever the number of rows"
        return rate, f"{reason}; {need.reason}, so the learning rate is high" if rate else reason
    return _few_shot(plan, records, need) or _small_data(plan, records, need)


def _few_shot(
    plan: FinetunePlan, records: Sequence[Sequence[Record]], need: TrainingDemand
) -> tuple[dict[str, Any], str] | None:
    """Return settings for few-shot learning: below FEW_ROWS single texts with one class each, or FEW_PAIRS pairs.

    Pairs need a sentence encoder or a young one: few pairs teach a young encoder less than its vectors already tell.
    Single texts need one that is not young. None if one of `LEFT_OPEN` is given, if the encoder is tuned in another
    way, or if it has no pooled sentence vectors; for pairs also if settings about epochs are given, which a linear
    layer does not have.
    """
    if not plan.open.issuperset(LEFT_OPEN) or len(plan.tasks) > 1 or plan.from_scratch:
        return None
    task, training, [rows] = plan.task, plan.training, records
    most = FEW_SCORED_PAIRS if task.values == "numbers" else FEW_PAIRS
    if task.form != "sequence" or not 0 < len(rows) < most:
        return None
    if training.tuning != "full" or training.recurrent or training.auxiliary or training.frozen:
        return None
    pairs = task.by_vectors(rows) != task
    if pairs and (plan.scores != ScoreSettings() or plan.comparison.seeds > 1 or plan.comparison.search != "none"):
        return None
    single = task.values == "classes" and len(rows) < FEW_ROWS and all(len(row.texts) == 1 for row in rows)
    if not (pairs or (single and not need.young)):
        return None
    folder = open_folder(plan.model, plan.opening.again)
    if with_sentences(folder.architecture) is None or (pairs and not (need.young or _of_sentences(folder))):
        return None
    if pairs:
        why = need.reason if need.young else "the encoder was trained to give alike texts like vectors"
        return {"training.few_shot": "linear"}, (
            f"{len(rows):,} training pairs are few and {why}: the two texts are read apart, and a linear layer "
            "compares their vectors. --few-shot none fine-tunes."
        )
    chosen = _contrastive(plan, records)
    long = f" The texts are long, so a step has {BATCH}." if chosen["training.batch"] == BATCH else ""
    return {"training.few_shot": "contrastive"} | chosen, (
        f"{len(rows):,} training rows are too few to fine-tune, so the encoder's sentence vectors are tuned "
        f"and a linear layer is fitted to them.{long} --few-shot none fine-tunes."
    )


def _contrastive(plan: FinetunePlan, records: Sequence[Sequence[Record]]) -> dict[str, Any]:
    """Return the defaults of contrastive tuning.

    A step is one pass, since the loss compares all its texts. If the mean number of tokens in a step would exceed
    `micro_tokens`, the batch is smaller, to limit memory.
    """
    rows = [row for own in records for row in own][:MEASURED]
    tokenizer, most = open_folder(plan.model, plan.opening.again).tokenizer, min(task.length for task in plan.tasks)
    tokens = sum(min(most, len(tokenizer.encode(text))) for row in rows for text in row.texts)
    long = CONTRASTIVE["training.batch"] * tokens > plan.training.micro_tokens * len(rows)
    return CONTRASTIVE | ({"training.batch": BATCH} if long else {})


def _of_sentences(folder: Folder) -> bool:
    """Return whether an encoder was trained for sentence vectors, and osbert computes them exactly as its files say."""
    try:
        found = folder.sentences
    except UserError:  # a pooling that there is not here
        return False
    return found is not None and found.pooling in ("cls", "mean") and not found.remarks


def _small_data(
    plan: FinetunePlan, records: Sequence[Sequence[Record]], need: TrainingDemand
) -> tuple[dict[str, Any], str]:
    """Return batch, epochs and learning rate for enough steps ({} if the paper's values give them), and the reason.

    A learning rate that the user gave is kept.
    """
    counts = [steps_per_epoch(task, own) for task, own in zip(plan.tasks, records)]

    def steps(batch: int) -> int:
        return sum(count(batch) for count in counts)

    before = plan.training.batch, plan.training.epochs
    found = small_data(steps, batch=before[0], epochs=before[1], need=need)
    made, makes = (epochs * steps(batch) for batch, epochs in (before, found))
    rate = need.usual_rate if found == before else need.rate
    chosen: dict[str, Any] = {} if found == before else dict(zip(LENGTH, found))
    if rate and RATE_NAME in plan.open:
        chosen[RATE_NAME] = rate
    if found == before:
        enough = f"the rows are enough for the paper's batch and epochs, which make {made:,} steps"
        return chosen, f"{enough}; {need.reason}, so the learning rate is high" if RATE_NAME in chosen else enough
    few = f", all that {need.epochs} epochs of so few rows give" if makes < need.steps else ""
    reason = f"{need.reason}, and " if need.young else ""
    return chosen, (
        f"{reason}batch {before[0]} and {before[1]} epochs would be {made:,} steps, too few to learn from; these are "
        f"{makes:,}{few}. --settings paper uses the paper's values."
    )


def _stored(out: Path, names: Collection[str]) -> dict[str, Any]:
    """Return the settings `names` of the run in a folder; without the learning rate if the run failed with it."""
    facts = RunFolder(out).facts if names else {}
    if facts.get("command") != "finetune":
        return {}
    tables: Mapping[str, Any] = facts.get("settings", {})
    found = {
        name: tables.get(name.partition(".")[0], {}).get(name.partition(".")[2]) for name in LEFT_OPEN if name in names
    }
    if "failed" in facts:
        found.pop("optimizer.learning_rate", None)
    return {name: value for name, value in found.items() if value is not None}
