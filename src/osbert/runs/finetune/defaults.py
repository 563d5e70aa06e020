"""Defaults for batch, epochs, learning rate and few-shot learning, by the rows; and advice on a collapsed run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from osbert import recipe
from osbert.errors import UserError
from osbert.interop.folder import Folder, open_folder
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.finetune.few_shot import CROSSED, FEW_HELD_OUT, with_sentences
from osbert.runs.finetune.plan import ADAPTER_RATE, LEFT_OPEN, LENGTH, FinetunePlan, describe_settings, flag
from osbert.runs.finetune.records import SPLITS, Splits
from osbert.runs.finetune.settings import FinetuneOptimizer, ScoreSettings
from osbert.tasks import Record, Task, load
from osbert.tasks.record import records_per_step
from osbert.tasks.tables.texts import joins_pairs, read_apart
from osbert.terminal import format_count
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
FEW_ROWS, ROWS_PER_CLASS = 100, 1.5
"""Number of single texts below which contrastive tuning is chosen, and fewest for each class: between one, of which
it cannot make a pair, and two."""
FEW_PER_CLASS = 200
"""Number of single texts for each label below which fine-tuning begins at a fitted linear layer (linear-first). A new
layer needs more steps the more outputs it has; with two classes, of which one score is enough, 200 rows are, and of
one number the layer was no better (docs/results.md)."""
FEW_PAIRS, FEW_SCORED_PAIRS = 2000, 6000
"""Number of pairs, and of pairs with a number each, below which a linear layer compares the vectors of a sentence
encoder. With 1,000 pairs it beat fine-tuning on all sets, with 2,500 not on MNLI, and with all 5,749 scored pairs of
STS-B it still did (docs/results.md)."""
MANY_PAIRS = 20_000
"""Number of pairs below which such a layer is fitted beside fine-tuning, and the better of both is kept: it costs one
pass over the pairs, and on QQP it was ahead with 2,500 (docs/results.md)."""
CONTRASTIVE = {"training.batch": 16, "training.epochs": 10, "optimizer.learning_rate": 5e-5}
"""Defaults of contrastive tuning. For long texts the batch is BATCH (`_contrastive`)."""
READING = ("apart", "both_orders", "long")
"""Settings of tasks about how a pair is read."""
FAR = 10
"""Factor from the learning rate that suits the rows, beyond which a given one is reported: at 20 times it contrastive
tuning made MiniLM worse than no tuning (docs/results.md)."""
CHOOSING = 200
"""Number of development rows below which the last epoch is kept: of fewer the best epoch is much chance
(docs/results.md). Between 100 and this bound nothing was measured."""
MEASURED = 1000
"""Number of rows whose lengths are measured."""


@dataclass(frozen=True, kw_only=True)
class TrainingDemand:
    """The training that an encoder needs for a task: fewest steps, most epochs, and learning rates.

    `rate`: for few rows. `usual_rate`: for enough rows; None for the paper's. `reason`: why it is not the paper's, ""
    if it is. `young`: whether the encoder was pretrained for minutes.
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
        tokens, forms = RunFolder(plan.model).pretraining_tokens, {task.form for task in plan.tasks}
        # 0 if a task has labels without places.
        placed = min(PLACE_EPOCHS.get(form, 0) for form in forms)
        if tokens is not None and tokens < YOUNG:
            # A young encoder knows little that a high rate could destroy, and has to learn most of the task.
            reason = f"the encoder saw only {tokens / 1e6:.2g} million tokens in pretraining"
            epochs = placed if forms == {"tokens"} else 20
            return cls(steps=600, epochs=epochs, rate=1e-3, usual_rate=1e-3, reason=reason, young=True)
        demand = cls(steps=PLACE_STEPS, epochs=placed) if placed else cls()
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


def learn_from_all(plan: FinetunePlan, records: Sequence[Splits], out: Path) -> list[Splits]:
    """Return the records of each task, without development rows if few-shot learning has too few rows to hold some out.

    It learns from all of them then, and a linear layer is scored by cross-validation. Rows are held out all the same if
    the user gave --held-out or a setting about the epoch that is kept, or compares runs. Raises UserError if no row can
    be held out where development rows are needed.
    """
    [splits, *others], task = records, plan.tasks[0]
    few = len(splits["dev"]) < FEW_HELD_OUT and task.source.is_held_out("dev") and task.frozen_states == "pooled"
    usual = "scores.keep" in plan.open and vars(task).get("held_out") == recipe.defaults(type(task)).get("held_out")
    if few and usual and not (others or plan.comparison.wanted or plan.learning_curve):
        every = sorted([*splits["train"], *splits["dev"]], key=lambda record: record.line)
        method = fill_defaults(plan, [every], out).training.few_shot
        classes = task.values == "classes" and not joins_pairs(task)
        if method != "none" and (method != "linear-first" or classes):
            return [{"train": every, "dev": []}]
    for task, task_splits in zip(plan.tasks, records):
        if not task_splits["dev"]:
            load(task, SPLITS)  # which says that no row can be held out
    return [*records]


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

    A setting that the user gave changes no other one: the defaults are those of a call without it. A warning names the
    given settings that make fewer steps than a model needs, or that rule out few-shot learning. A run that is resumed
    in the folder `out` keeps its settings. `records`: the training rows of each task; an epoch has the steps of all
    tasks.
    """
    chosen, reason, warning = _choice(plan, records, out)
    plan = plan.replace_settings(chosen)
    if plan.training.few_shot == "linear":
        plan = replace(
            plan, tasks=tuple(read_apart(task, task_records) for task, task_records in zip(plan.tasks, records))
        )
    few_shot = plan.training.few_shot
    names = {
        "none": (*LENGTH, RATE_NAME),
        "linear": ("training.few_shot",),
        "linear-first": ("training.few_shot", *LENGTH, RATE_NAME),
    }.get(few_shot, ("training.few_shot", *CONTRASTIVE))
    table = plan.table()
    settings = {name: table[name.partition(".")[0]][name.partition(".")[2]] for name in names}
    settings |= dict.fromkeys(plan.comparison.varied, "searched")
    watch(Notice(f"{describe_settings(settings)}: {reason}"))
    if warning:
        watch(Notice(warning, warning=True))
    return plan


def keep_last_of_few(
    plan: FinetunePlan, development: Sequence[Sequence[Record]], out: Path, watch: Watch = ignore
) -> FinetunePlan:
    """Return the plan with the last epoch kept if a task has too few development rows to choose one by.

    With linear-first it is the better of the last epoch and the linear layer.
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
    if not count:
        watch(Notice(f"no row is held out of so few: {CROSSED}; --dev FILE gives development rows"))
        return plan if plan.training.few_shot == "linear" else replace(plan, scores=replace(plan.scores, keep="last"))
    if count >= CHOOSING or len(plan.tasks) > 1 or not plan.scores.chooses(plan.training):
        return plan
    keep: Literal["better", "last"] = "better" if plan.training.few_shot == "linear-first" else "last"
    few = f"{format_count(count, 'development row')} {'is' if count == 1 else 'are'} too few to choose an epoch"
    watch(Notice(f"keep {keep}: {few}; --keep best chooses all the same, --dev FILE gives others"))
    return replace(plan, scores=replace(plan.scores, keep=keep))


def _choice(plan: FinetunePlan, records: Sequence[Sequence[Record]], out: Path) -> tuple[dict[str, Any], str, str]:
    """Return the chosen settings by their dotted names ({} to keep those of the plan), the reason, and a warning."""
    if stored := _read_settings(out, plan.open):
        return stored, f"kept from the run in {out}", ""
    if plan.training.few_shot == "linear-first":
        return _small_data(plan, records, TrainingDemand.of(plan))
    if plan.training.few_shot != "none":
        defaults = {} if plan.training.few_shot == "linear" else _contrastive(plan, records)
        chosen = {name: value for name, value in defaults.items() if name in plan.open}
        reason = "and what goes with it" if chosen else "whatever the number of rows"
        return {"training.few_shot": plan.training.few_shot, **chosen}, f"few-shot learning, as given, {reason}", ""
    if not plan.open:
        return {}, "as given, and the paper's values where nothing is given, whatever the number of rows", ""
    need = TrainingDemand.of(plan)
    method = _few_shot_method(plan, records, need)
    hindrances = _hindrances(plan, records, method) if method else []
    if method == "linear-first" and not hindrances:
        return _linear_first(plan, records, need)
    if method and not hindrances:
        return *_few_shot(plan, records, need, method), _far_rate(plan, CONTRASTIVE[RATE_NAME])
    chosen, reason, warning = _small_data(plan, records, need)
    if hindrances:
        flags, them = " and ".join(map(flag, hindrances)), "it" if len(hindrances) == 1 else "them"
        warning = (
            f"so few rows are learnt best by few-shot learning ({method}), which does not go with {flags}: "
            f"remove {them} for a better score."
        )
    return chosen, reason, warning


def _few_shot_method(plan: FinetunePlan, records: Sequence[Sequence[Record]], need: TrainingDemand) -> str:
    """Return the method of few-shot learning that suits the rows and the encoder, "" if none does.

    Pairs: linear below FEW_PAIRS, for a sentence encoder or a young one: few pairs teach a young encoder less than its
    vectors already tell; of more pairs linear-first. Single texts: `_text_method`, for an encoder that is not young.
    Both need pooled sentence vectors.
    """
    if "training.few_shot" not in plan.open or len(plan.tasks) > 1:
        return ""
    task, [rows] = plan.task, records
    if task.frozen_states != "pooled" or not rows:
        return ""
    usual = _usual_reading(task)
    if pairs := read_apart(usual, rows) != usual:
        method = "linear" if len(rows) < (FEW_SCORED_PAIRS if task.values == "numbers" else FEW_PAIRS) else ""
        if not method and not need.young and len(rows) < MANY_PAIRS and joins_pairs(task):
            method = "linear-first"
    else:
        method = "" if need.young else _text_method(task, rows)
    if not method:
        return ""
    folder = open_folder(plan.model, plan.opening.again)
    if with_sentences(folder.architecture) is None or (pairs and not (need.young or _of_sentences(folder))):
        return ""
    return method


def _text_method(task: Task, rows: Sequence[Record]) -> str:
    """Return the method for single texts, by the rows and the rows of each class or label, "" for none."""
    if task.values == "numbers" or any(len(row.texts) != 1 for row in rows):
        return ""
    few, outputs = len(rows) < FEW_ROWS, len(task.classes)
    if task.values == "classes":
        if few and len(rows) >= ROWS_PER_CLASS * outputs:
            return "contrastive"
        few |= outputs > 2 and len(rows) < FEW_PER_CLASS * outputs
    else:
        few = len(rows) < FEW_PER_CLASS * outputs
    return "linear-first" if few else ""


def _usual_reading(task: Task) -> Task:
    """Return the task with the defaults of the settings that may keep a pair from being read as two texts."""
    usual = recipe.defaults(type(task))
    return replace(task, **{name: usual[name] for name in READING if name in usual})


def _hindrances(plan: FinetunePlan, records: Sequence[Sequence[Record]], method: str) -> list[str]:
    """Return the dotted names of the given settings that a method of few-shot learning does not have."""
    [task] = plan.tasks
    usual, [rows] = _usual_reading(task), records
    reading = [name for name in READING if getattr(task, name, None) != getattr(usual, name, None)]
    found = ["from_scratch"] if plan.from_scratch else []
    names = ["training.tuning", "training.recurrent", "training.auxiliary", "training.frozen"]
    if method == "linear":  # one fit: it has no epochs, and is the same for every seed
        names += [f"scores.{field.name}" for field in fields(ScoreSettings)]
        found += reading if read_apart(task, rows) == task else []
        names += ["comparison.search", *(["comparison.seeds"] if plan.comparison.seeds > 1 else [])]
    for name in names:
        part, _, setting = name.partition(".")
        settings = getattr(plan, part)
        if getattr(settings, setting) != recipe.defaults(type(settings))[setting]:
            found.append(name)
    return found + ([name for name in LEFT_OPEN if name in plan.given] if method == "linear" else [])


def _few_shot(
    plan: FinetunePlan, records: Sequence[Sequence[Record]], need: TrainingDemand, method: str
) -> tuple[dict[str, Any], str]:
    """Return the settings of a method of few-shot learning that the user left open, and the reason."""
    [rows] = records
    if method == "linear":
        why = need.reason if need.young else "the encoder was trained to give alike texts like vectors"
        return {"training.few_shot": "linear"}, (
            f"{len(rows):,} training pairs are few and {why}: the two texts are read apart, and a linear layer "
            "compares their vectors. --few-shot none fine-tunes."
        )
    suited = _contrastive(plan, records)
    chosen = {name: value for name, value in suited.items() if name in plan.open}
    long = f" The texts are long, so a step has {BATCH}." if chosen.get("training.batch") == BATCH else ""
    return {"training.few_shot": "contrastive"} | chosen, (
        f"{len(rows):,} training rows are too few to fine-tune, so the encoder's sentence vectors are tuned "
        f"and a linear layer is fitted to them.{long} --few-shot none fine-tunes."
    )


def _linear_first(
    plan: FinetunePlan, records: Sequence[Sequence[Record]], need: TrainingDemand
) -> tuple[dict[str, Any], str, str]:
    """Return the settings of fine-tuning from a linear layer that the user left open, the reason, and a warning."""
    [rows] = records
    chosen, reason, warning = _small_data(plan, records, need)
    if joins_pairs(plan.task):
        why = f"{len(rows):,} training pairs are fewer than {MANY_PAIRS:,}"
        begin = "a linear layer that compares the vectors of the two texts is fitted beside fine-tuning"
    else:
        why = f"{len(rows):,} training rows for {len(plan.task.classes):,} labels are fewer than {FEW_PER_CLASS} each"
        begin = "a linear layer is fitted to the encoder's sentence vectors first, fine-tuning begins with it"
    return (
        {"training.few_shot": "linear-first"} | chosen,
        f"{why}, so {begin}, and the better of both on development rows, if there are any, is kept. --few-shot none "
        f"fine-tunes a new layer. Steps: {reason}",
        warning,
    )


def _contrastive(plan: FinetunePlan, records: Sequence[Sequence[Record]]) -> dict[str, Any]:
    """Return the defaults of contrastive tuning.

    A step is one pass, since the loss compares all its texts. If the mean number of tokens in a step would exceed
    `micro_tokens`, the batch is smaller, to limit memory.
    """
    rows = [row for task_records in records for row in task_records][:MEASURED]
    tokenizer, most = open_folder(plan.model, plan.opening.again).tokenizer, min(task.length for task in plan.tasks)
    tokens = sum(min(most, len(tokenizer.encode(text))) for row in rows for text in row.texts)
    long = CONTRASTIVE["training.batch"] * tokens > plan.training.micro_tokens * len(rows)
    return CONTRASTIVE | ({"training.batch": BATCH} if long else {})


def _of_sentences(folder: Folder) -> bool:
    """Return whether an encoder was trained for sentence vectors that few-shot learning computes as its files say."""
    try:
        return folder.sentences is not None and folder.sentences.is_plain
    except UserError:  # parts or a pooling that osbert lacks
        return False


def _small_data(
    plan: FinetunePlan, records: Sequence[Sequence[Record]], need: TrainingDemand
) -> tuple[dict[str, Any], str, str]:
    """Return the open ones of batch, epochs and learning rate for enough steps, the reason, and a warning.

    The warning names the given settings that make fewer steps than are needed, "" if none does.
    """
    teaching = [
        [record for record in task_records if not task.lacks(record)] for task, task_records in zip(plan.tasks, records)
    ]

    def steps(batch: int, epochs: int = 1) -> int:
        return epochs * sum(max(1, -(-len(rows) // records_per_step(batch, rows))) for rows in teaching)

    paper = recipe.defaults(type(plan.training))
    usual = paper["batch"], paper["epochs"]
    suited = small_data(steps, batch=usual[0], epochs=usual[1], need=need)
    enough = suited == usual
    batch_and_epochs: dict[str, Any] = dict(zip(LENGTH, suited))
    rate = need.usual_rate if enough else need.rate
    if rate and plan.training.tuning == "full":  # for few weights the plan has a rate of its own
        batch_and_epochs[RATE_NAME] = rate
    chosen = {name: value for name, value in batch_and_epochs.items() if name in plan.open}
    batch, epochs = (chosen.get(name, getattr(plan.training, name.partition(".")[2])) for name in LENGTH)
    count, given = steps(batch, epochs), [name for name in LENGTH if name in plan.given]
    before = f"{need.reason}, and " if need.young else ""
    if not plan.open.issuperset(LENGTH) and not chosen.keys() & {*LENGTH}:
        high = f"; {need.reason}, so the learning rate is high" if need.reason and RATE_NAME in chosen else ""
        reason = f"as given, and the defaults where nothing is given{high}"
    elif enough:
        high = f"; {need.reason}, so the learning rate is high" if RATE_NAME in chosen else ""
        reason = f"the rows are enough for the paper's batch and epochs, which make {steps(*usual):,} steps{high}"
    else:
        few = f", all that {need.epochs} epochs of so few rows give" if count < need.steps and not given else ""
        reason = (
            f"{before}batch {usual[0]} and {usual[1]} epochs would be {steps(*usual):,} steps, too few to learn from; "
            f"these are {count:,}{few}. --settings paper uses the paper's values."
        )
    fewer = {"training.batch": steps(suited[0], epochs), "training.epochs": steps(batch, suited[1])}
    flags = " and ".join(flag(name) for name in given if fewer[name] > count)
    if plan.training.tuning != "full" and count < STEPS:
        few = f"{count:,} steps are too few for --tuning {plan.training.tuning}, which moves fewer weights"
        warning = f"{few}: leave {' and '.join(filter(None, ('--tuning', flags)))} out, or give more steps."
    elif flags and count < min(need.steps, steps(*suited)):
        warning = f"{count:,} steps are few; without {flags} the default is {steps(*suited):,}."
    elif plan.training.tuning != "full":
        warning = _far_rate(plan, ADAPTER_RATE)
    else:
        warning = _far_rate(plan, rate or FinetuneOptimizer.learning_rate)
    return chosen, reason, warning


def _far_rate(plan: FinetunePlan, suited: float) -> str:
    """Return a warning if the user gave a learning rate far from the one that suits the rows, else ""."""
    rate = plan.optimizer.learning_rate
    if RATE_NAME not in plan.given or suited / FAR <= rate <= suited * FAR:
        return ""
    return f"a learning rate of {rate:g} is far from the {suited:g} that suits these rows: leave {flag(RATE_NAME)} out."


def _read_settings(out: Path, names: Collection[str]) -> dict[str, Any]:
    """Return the settings `names` of the run in a folder; without the learning rate if the run failed with it."""
    facts = RunFolder(out).facts if names else {}
    if facts.get("command") != "finetune":
        return {}
    tables: Mapping[str, Any] = facts.get("settings", {})
    settings = {
        name: tables.get(name.partition(".")[0], {}).get(name.partition(".")[2]) for name in LEFT_OPEN if name in names
    }
    if "failed" in facts:
        settings.pop("optimizer.learning_rate", None)
    return {name: value for name, value in settings.items() if value is not None}


HIGH = {"full": 5e-5, "none": 1e-2, "adapters": 1e-3, "lora": 1e-3}
"""Learning rate, by kind of tuning, from which on the first advice is a lower one."""


def advise_on_collapse(settings: Mapping[str, Any], *, steps: int, flags: Sequence[str] = ()) -> str:
    """Return advice after a collapsed run of `steps` steps; `settings` are those of its recipe.

    `flags`: those of the number of steps that the user gave, which the defaults for few rows would do better without.

    >>> paper = {"training": {"epochs": 3, "batch": 32, "tuning": "full"}, "optimizer": {"learning_rate": 3e-5}}
    >>> advise_on_collapse(paper, steps=18)
    '18 steps (3 epochs, batch 32) are few: give more --epochs or a smaller --batch, for 200 steps or more.'
    >>> advise_on_collapse(paper, steps=18, flags=["--batch"])
    '18 steps (3 epochs, batch 32) are few. Remove --batch; the default follows the number of rows.'
    """
    training, rate = settings["training"], settings["optimizer"]["learning_rate"]
    if training.get("few_shot", "none") != "none":
        return "The encoder's vectors do not separate the labels. Give more rows of each, or use --few-shot none."
    steps_text = f"{steps:,} steps ({format_count(training['epochs'], 'epoch')}, batch {training['batch']})"
    if steps < STEPS and flags:
        return f"{steps_text} are few. Remove {' and '.join(flags)}; the default follows the number of rows."
    if steps < STEPS:
        return f"{steps_text} are few: give more --epochs or a smaller --batch, for {STEPS} steps or more."
    seeds = "another --seed, or several (--seeds 5)"
    if rate >= HIGH[training["tuning"]]:
        return f"It took {steps_text} at a rate of {rate:g}: try --learning-rate {rate / 2:g} or {seeds}."
    return f"It took {steps_text} at a rate of {rate:g}: try {seeds}, or more --epochs."
