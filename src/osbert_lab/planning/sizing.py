"""Chooses the model size for given minutes and text: compares sizes, and writes a recipe for the best."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from osbert import recipe
from osbert.errors import UserError
from osbert.files import is_stream, require_file, writing_output
from osbert.interop.opening import CAREFUL, Opening
from osbert.lock import claim
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.pretrain.settings import PretrainPlan, read_plan
from osbert.training import probe
from osbert.training.memory import device_memory
from osbert_lab.planning import plan_sizes, speed
from osbert_lab.planning.expected_loss import AS_NEW, USELESS
from osbert_lab.planning.plan_sizes import Size, SizeEstimate, SizeLimits, SizeSample
from osbert_lab.planning.speed import PEAKS

RECIPES = {"cpu": "cpu", "cuda": "bert-fast"}
"""Default recipe whose size is varied, by kind of device."""
ASSUMED_GPU, ASSUMED_SHARE = "H100", 0.2
"""The assumed GPU for --gpu on a machine without one, and the fraction of its published peak that training reaches at
a width of 768 or more, as measured with BERT BASE (docs/results.md); at smaller widths it is lower in proportion."""
OURS = "# `osbert plan` may write this file anew as long as nobody has changed it ({})."
"""First line of a recipe, with a hash of the rest of the file."""
LOADING = 0.1
"""Fraction of the test's time in which the loader runs alone."""


@dataclass(frozen=True, kw_only=True)
class SizeRequest:
    """The arguments of a plan; nothing is opened yet.

    `recipe` and `settings`: as for pretraining; the model's size is varied. "" for the default recipe of the device.
    `minutes`: for pretraining. `gpu`: plan for the GPU of this machine, or for an assumed one. `seconds`: for the speed
    test.
    """

    recipe: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    corpus: Path
    minutes: float
    gpu: bool = False
    seconds: float = 20.0
    opening: Opening = CAREFUL

    @property
    def name(self) -> str:
        """The recipe whose size is varied."""
        return self.recipe or RECIPES["cuda" if self.gpu else "cpu"]


@dataclass(frozen=True, kw_only=True)
class SizeComparison:
    """The estimates for each size, and the `best` one. `absent`: this machine lacks the device."""

    reported: ClassVar[tuple[str, ...]] = ("absent", "best", "estimates")

    request: SizeRequest
    plan: PretrainPlan
    absent: bool
    estimates: Sequence[SizeEstimate]
    best: SizeEstimate


def plan_size(request: SizeRequest, *, out: Path, watch: Watch = ignore) -> SizeComparison:
    """Compare sizes of a model, and write a recipe for the best one to the file `out`.

    `watch` gets the comparison and Notice. Raises UserError if `out` is a file that osbert did not write, if no size
    fits into memory, and if there is no time to train.
    """
    for name, value in (("minutes", request.minutes), ("seconds", request.seconds)):
        if not 0 < value < float("inf"):
            raise UserError(f"--{name} must be above 0, not {value:g}.", code="invalid-value")
    with claim(out) as claimed_path:
        check_out(claimed_path)
        with tempfile.TemporaryDirectory(prefix="osbert-plan-") as folder:
            comparison = compare_sizes(request, Path(folder) / "run", watch)
        watch(comparison)
        for remark in remarks(comparison):
            watch(Notice(remark))
        write_recipe(comparison, claimed_path)
    return comparison


def compare_sizes(request: SizeRequest, run: Path, watch: Watch = ignore) -> SizeComparison:
    """Return the comparison of sizes, measured in the folder `run`, or assumed if the device is absent."""
    plan = read_plan(request.name, request.settings, corpus=request.corpus, out=run, opening=request.opening)
    device, absent = choose_device(plan.settings.training.device, gpu=request.gpu)
    plan = replace(plan, settings=replace(plan.settings, training=replace(plan.settings.training, device=device)))
    kind = device.partition(":")[0]
    sizes = plan_sizes.candidates(plan, kind)
    process = probe.resident_memory() if kind == "cpu" else 0
    # No size can train faster than the loader makes batches, however small the model is.
    ceiling = speed.loader_ceiling(plan, plan.settings.data.length, seconds=request.seconds * LOADING)
    limits = SizeLimits(seconds=60 * request.minutes, loader=ceiling, process=process)
    if absent:
        samples = assume_samples(sizes)
    else:
        watch(Notice(f"Training a few sizes for {request.seconds:g} s in total to measure this machine's speed."))
        samples = plan_sizes.measure(to_measure(sizes, kind), run, seconds=request.seconds * (1 - LOADING))
    estimates = [plan_sizes.estimate(size, samples, limits) for size in sizes]
    best = choose(estimates, available_memory(kind, absent=absent))
    return SizeComparison(request=request, plan=plan, absent=absent, estimates=estimates, best=best)


def choose_device(wanted: str, *, gpu: bool) -> tuple[str, bool]:
    """Return the device to plan for, and whether this machine lacks it; `wanted`: the setting training.device.

    Raises UserError if --gpu and training.device differ.
    """
    if wanted == "auto":
        wanted = "cuda" if gpu else "cpu"
    elif gpu and not wanted.startswith("cuda"):
        raise UserError(
            f"--gpu plans for a GPU, but training.device is {wanted}. Remove one of the two.",
            code="options-exclude-each-other",
        )
    return wanted, wanted.startswith("cuda") and not torch.cuda.is_available()


def to_measure(sizes: Sequence[Size], kind: str) -> list[Size]:
    """Return the sizes to train for some seconds; the smallest if none of MEASURED is among them."""
    return [size for size in sizes if (size.sizes.layers, size.sizes.width) in plan_sizes.MEASURED[kind]] or list(
        sizes[:1]
    )


def assume_samples(sizes: Sequence[Size]) -> list[SizeSample]:
    """Return assumed samples for an absent GPU: a fraction of its published peak, and activations in bf16."""
    return [
        SizeSample(
            size=size,
            flops_per_second=PEAKS[ASSUMED_GPU] * ASSUMED_SHARE * min(1.0, size.sizes.width / 768),
            memory=plan_sizes.estimate_memory(size, half=True),
        )
        for size in sizes
    ]


def available_memory(kind: str, *, absent: bool) -> float:
    """Return the bytes of memory for a run; 80 GB for an absent GPU."""
    if absent:
        return 80e9
    return device_memory(torch.device(kind))


def choose(estimates: Sequence[SizeEstimate], memory: float) -> SizeEstimate:
    """Return the size with the lowest expected loss among those that fit into `memory` bytes.

    If that size would repeat its text too often (USELESS), it is the smallest that fits: larger models would memorise
    the text, which the expected loss does not model.

    Raises UserError if no size fits, and if there is no time to train.
    """
    fitting = [row for row in estimates if row.memory <= memory]
    if not fitting:
        least = min(row.memory for row in estimates)
        raise UserError(
            f"Even the smallest size does not fit: it needs {least / 1e9:,.1f} GB of memory, and "
            f"{memory / 1e9:,.1f} GB are available. Use a smaller --data.batch or --micro-tokens.",
            code="out-of-memory",
        )
    if not fitting[0].tokens:
        raise UserError(
            "The time is too short: starting and finishing a run take about 15 s. Give more --minutes.",
            code="too-little-time",
        )
    best = min(fitting, key=lambda row: row.loss.middle)
    return min(fitting, key=lambda row: row.size.parameters) if best.epochs > USELESS else best


def remarks(comparison: SizeComparison) -> Iterator[str]:
    """Yield remarks under the table of sizes: the meaning of the figures, and whether the text suffices."""
    best, plan = comparison.best, comparison.plan
    guessing = plan.corpus.unigram_entropy
    if comparison.absent:
        yield (
            "There is no GPU here, so nothing of this is measured but the loader: "
            f"{ASSUMED_SHARE:.0%} of the published peak of an {ASSUMED_GPU} is assumed, as BERT BASE reached on an "
            "H200, and less for models narrower than 768."
        )
    else:
        yield "~ is worked out from the sizes that were trained; memory and disk are for the whole run."
    yield (
        "Loss: the cross-entropy to expect on held-out masked pieces, in nats; guessing without context has "
        f"{guessing:.2f}. A rough guide, fitted to short runs of the recipe cpu on two CPU cores; far from those it is "
        "a guess."
    )
    if "mlm" not in plan.objectives:
        yield f"For {' and '.join(plan.objectives)} it ranks the sizes; losses of other pieces than masked ones differ."
    if best.loss.middle >= guessing:
        yield "No size learns more than guessing in this time on this text: give more --minutes, or more text."
    if best.epochs <= AS_NEW:
        return
    # Text that is read AS_NEW times is worth nearly as much as new text (Muennighoff et al. 2023).
    wanted = best.tokens / AS_NEW
    size = wanted * plan.corpus.report["text_bytes"] / plan.corpus.tokens
    enough = f"With {short(wanted)} tokens, about {short(size)}B of text, it would be seen {AS_NEW} times"
    if best.epochs > USELESS:
        yield (
            f"The corpus is too small: it would be seen {best.epochs:,.0f} times, and from about {USELESS} on "
            f"repeating it teaches next to nothing, so the smallest size is taken. {enough}."
        )
    else:
        yield f"The corpus would be seen {best.epochs:,.0f} times. {enough}, which is nearly as good as new text."


def write_recipe(comparison: SizeComparison, out: Path) -> None:
    """Write the recipe of the best size: the varied recipe and settings, the size, the device and the minutes."""
    request, best = comparison.request, comparison.best
    chosen = best.size.plan.settings
    table: dict[str, Any] = recipe.override(recipe.read(request.name), request.settings, schema=type(chosen))
    table = {**table, "minutes": float(request.minutes)}
    before, after = (recipe.as_table(model) for model in (comparison.plan.settings.model, chosen.model))
    # The three settings of the size are written even if they equal the recipe's, so that the file shows them; the first
    # position as it fits the corpus's tokenizer, since a recipe from a file is taken as it is.
    named = ("layers", "width", "heads", *(("first_position",) if before.get("first_position") else ()))
    changed = {name: value for name, value in after.items() if name in named or value != before[name]}
    table.setdefault("model", {}).update(changed)
    table.setdefault("optimizer", {})["learning_rate"] = chosen.optimizer.learning_rate
    # The minutes decide the number of steps when the run begins.
    table.setdefault("training", {}).pop("steps", None)
    table["training"]["device"] = chosen.training.device
    text = f"# {Path(request.name).stem} as {best.size.name}, "
    text += f"which `osbert plan` found best for {request.minutes:g} minutes.\n"
    text += recipe.dump(table)
    with writing_output(out) as path:
        path.write_text(f"{OURS.format(_seal(text))}\n{text}", encoding="utf-8", newline="")


def check_out(out: Path) -> None:
    """Raise UserError if `out` exists and is not an unchanged recipe of `write_recipe`."""
    require_file(out)
    if out.exists() and not is_stream(out):
        first, _, text = out.read_text(encoding="utf-8", errors="replace").partition("\n")
        if first != OURS.format(_seal(text)):
            raise UserError(
                f"{out} exists already and was changed since `osbert plan` wrote it. Choose another --out.",
                code="output-exists",
            )


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def short(number: float) -> str:
    """Return a number with three digits and a unit: "950", "1.49M", "12.3G"."""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{letter}" if number < 999.5 * unit else f"{number / unit:.0f}{letter}"
    return f"{number:.0f}"
