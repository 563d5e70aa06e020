"""osbert plan: how large a model to train, in the minutes and on the text at hand; and the recipe for it."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from osbert.commands.opening_options import OpeningOptions
from osbert.errors import UserError
from osbert.evaluation.expected import AS_NEW, USELESS
from osbert.interop.opening import CAREFUL
from osbert.terminal import open_console

if TYPE_CHECKING:
    from rich.console import Console

    from osbert.runs.pretrain.plan_sizes import Row, Sample, Size
    from osbert.runs.pretrain.settings import PretrainPlan

RECIPES = {"cpu": "cpu", "cuda": "bert-fast"}
"""The recipe whose size is varied unless another is given, by the kind of device that is planned for."""
ASSUMED_GPU, ASSUMED_SHARE = "H100", 0.35
"""What is planned for with --gpu where there is none: its published peak, and the share of it that training reaches
at a width of 768 or more; narrower models reach less, in proportion."""
OURS = "# `osbert plan` may write this file anew as long as nobody has changed it ({})."
"""The first line of a recipe, with a hash of what follows."""
LOADING = 0.1
"""Share of the test's time in which the loader runs by itself."""


def plan(
    *recipe: Annotated[str, Parameter(allow_leading_hyphen=True, negative=())],
    corpus: Path,
    minutes: float,
    gpu: Annotated[bool, Parameter(negative=())] = False,
    out: Path = Path("plan.toml"),
    seconds: float = 20.0,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Say what a time budget can buy: a table of model sizes, and a recipe for the best of them.

    Trains a few sizes for 20 seconds in all, and works out for these and others how much text the minutes allow, how
    often the corpus would be seen, memory, disk, and the held-out loss to expect.

    Parameters
    ----------
    recipe
        A recipe and settings, as for `osbert pretrain`, whose size is varied; by default "cpu", with --gpu "bert-fast".
    corpus
        A folder that `osbert corpus build` made.
    minutes
        The time that pretraining may take.
    gpu
        Plan for the GPU of this machine, or for an assumed one if it has none.
    out
        The file for the recipe.
    seconds
        How long to test the speed.
    """
    import tempfile
    from dataclasses import replace

    from osbert import recipe as recipes
    from osbert.lock import claim
    from osbert.runs.pretrain.settings import read_plan

    for name, value in (("minutes", minutes), ("seconds", seconds)):
        if not 0 < value < float("inf"):
            raise UserError(f"--{name} must be above 0, not {value:g}.")
    with claim(out) as place:
        check_out(place)
        name, settings = recipes.split(recipe, otherwise=RECIPES["cuda" if gpu else "cpu"])
        console = open_console()
        with tempfile.TemporaryDirectory(prefix="osbert-plan-") as folder:
            base = read_plan(name, settings, corpus=corpus, out=Path(folder) / "run", opening=opening)
            device, absent = planned_device(base.settings.training.device, gpu=gpu)
            base = replace(
                base, settings=replace(base.settings, training=replace(base.settings.training, device=device))
            )
            rows = measured_rows(base, Path(folder) / "run", console, absent=absent, minutes=minutes, seconds=seconds)
        best = choose(rows, available_memory(device.partition(":")[0], absent=absent))
        show(rows, best, console, minutes=minutes)
        for remark in remarks(best, base, absent=absent):
            _say(console, remark)
        write_recipe(best, place, base=(name, settings), minutes=minutes)
        command = shlex.join(["osbert", "pretrain", str(out), "--corpus", str(corpus), "--out", "run", *opening.words])
        _say(console, f"The recipe is in {out}:\n  {command}")


def measured_rows(
    base: PretrainPlan, run: Path, console: Console, *, absent: bool, minutes: float, seconds: float
) -> list[Row]:
    """Return what the minutes buy, size by size: measured for so many seconds in the folder `run`, or assumed."""
    from osbert.runs.pretrain.plan_sizes import Limits, candidates, loader_ceiling, measure, row
    from osbert.training.probe import resident_memory

    kind = base.settings.training.device.partition(":")[0]
    sizes = candidates(base, kind)
    process = resident_memory() if kind == "cpu" else 0
    ceiling = loader_ceiling(base, seconds=seconds * LOADING)
    limits = Limits(seconds=60 * minutes, loader=ceiling, process=process)
    if absent:
        samples = assumed(sizes)
    else:
        _say(console, f"Training a few sizes for {seconds:g} s in all, to see how fast this machine is.")
        samples = measure(to_measure(sizes, kind), run, seconds=seconds * (1 - LOADING))
    return [row(size, samples, limits) for size in sizes]


def planned_device(wanted: str, *, gpu: bool) -> tuple[str, bool]:
    """Return the device to plan for, and whether this machine lacks it; `wanted` is what training.device says.

    Raises UserError when --gpu and training.device differ.
    """
    import torch

    if wanted == "auto":
        wanted = "cuda" if gpu else "cpu"
    elif gpu and not wanted.startswith("cuda"):
        raise UserError(f"--gpu plans for a GPU, but training.device is {wanted}. Leave one of them out.")
    return wanted, wanted.startswith("cuda") and not torch.cuda.is_available()


def to_measure(sizes: Sequence[Size], kind: str) -> list[Size]:
    """Return the sizes to train for some seconds; when none of the usual ones is there, the smallest."""
    from osbert.runs.pretrain.plan_sizes import MEASURED

    return [size for size in sizes if (size.sizes.layers, size.sizes.width) in MEASURED[kind]] or list(sizes[:1])


def assumed(sizes: Sequence[Size]) -> list[Sample]:
    """Return samples of a GPU that is not here: a share of its published peak, and activations in bf16."""
    from osbert.evaluation.speed import PEAKS
    from osbert.runs.pretrain.plan_sizes import Sample, counted_memory

    return [
        Sample(
            size=size,
            flops_per_second=PEAKS[ASSUMED_GPU] * ASSUMED_SHARE * min(1.0, size.sizes.width / 768),
            memory=counted_memory(size, half=True),
        )
        for size in sizes
    ]


def available_memory(kind: str, *, absent: bool) -> float:
    """Return the bytes of memory that a run could use; those of an 80 GB card when the GPU is not here."""
    import os

    import torch

    if absent:
        return 80e9
    if kind == "cuda":
        return torch.cuda.mem_get_info()[1]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def choose(rows: Sequence[Row], memory: float) -> Row:
    """Return the row with the lowest expected loss among those that fit into so many bytes of memory.

    Where that one would see its text too often to learn from it, it is the smallest: more weights would only learn the
    text by heart, which the expected loss does not know.

    Raises UserError when none fits, and when there is no time to train.
    """
    fitting = [row for row in rows if row.memory <= memory]
    if not fitting:
        least = min(row.memory for row in rows)
        raise UserError(
            f"Not even the smallest size fits: it takes {least / 1e9:,.1f} GB of memory, and there are "
            f"{memory / 1e9:,.1f} GB. Give a smaller --data.batch, or --micro-tokens."
        )
    if not fitting[0].tokens:
        raise UserError("The time is too short: beginning a run and ending it take about 15 s. Give more --minutes.")
    best = min(fitting, key=lambda row: row.loss.middle)
    return min(fitting, key=lambda row: row.size.parameters) if best.epochs > USELESS else best


def show(rows: Sequence[Row], best: Row, console: Console, *, minutes: float) -> None:
    """Print the table of sizes, the recommended one marked."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=f"What {minutes:g} minutes buy", title_justify="left")
    columns = ("", "size", "weights", "tokens/s", "tokens", "epochs", "memory", "disk", "loss")
    table.padding, table.collapse_padding, table.pad_edge = (0, 1), True, False
    for name in columns:
        table.add_column(name, justify="left" if name in ("", "size") else "right", no_wrap=True)
    for row in rows:
        pace = f"{'' if row.measured else '~'}{_short(row.tokens_per_second)}"
        loss = f"{row.loss.low:.1f} to {row.loss.high:.1f}"
        cells = (
            ">" if row is best else "",
            row.size.name,
            _short(row.size.parameters),
            pace,
            _short(row.tokens),
            f"{row.epochs:,.2g}" if row.epochs < 10 else f"{row.epochs:,.0f}",
            f"{_short(row.memory)}B",
            f"{_short(row.disk)}B",
            loss,
        )
        table.add_row(*cells, style="bold" if row is best else "")
    console.print(table)


def remarks(best: Row, plan: PretrainPlan, *, absent: bool) -> Iterator[str]:
    """Yield what stands under the table: what the figures are, and whether the text suffices."""
    guessing = plan.corpus.unigram_entropy
    if absent:
        yield (
            "There is no GPU here, so nothing of this is measured but the loader: "
            f"{ASSUMED_SHARE:.0%} of the published peak of an {ASSUMED_GPU} is assumed, and less for models narrower "
            "than 768."
        )
    else:
        yield "~ is worked out from the sizes that were trained; memory and disk are for the whole run."
    yield (
        "Loss: the cross-entropy to expect on held-out masked pieces, in nats; guessing without context has "
        f"{guessing:.2f}. A rough guide, fitted to short runs of the recipe cpu on two CPU cores; far from those it is "
        "a guess."
    )
    if best.loss.middle >= guessing:
        yield "No size learns more than guessing in this time on this text: give more --minutes, or more text."
    if best.epochs <= AS_NEW:
        return
    wanted = best.tokens / AS_NEW
    size = wanted * plan.corpus.report["text_bytes"] / plan.corpus.tokens
    enough = f"With {_short(wanted)} tokens, about {_short(size)}B of text, it would be seen {AS_NEW} times"
    if best.epochs > USELESS:
        yield (
            f"The corpus is too small: it would be seen {best.epochs:,.0f} times, and from about {USELESS} on "
            f"repeating it teaches next to nothing, so the smallest size is taken. {enough}."
        )
    else:
        yield f"The corpus would be seen {best.epochs:,.0f} times. {enough}, which is nearly as good as new text."


def write_recipe(best: Row, out: Path, *, base: tuple[str, Mapping[str, Any]], minutes: float) -> None:
    """Write the recipe of a row: the base, a recipe and settings, its size and device, a time for steps."""
    from osbert import recipe
    from osbert.files import writing_output

    name, settings = base
    chosen = best.size.plan.settings
    table: dict[str, Any] = recipe.override(recipe.read(name), settings, schema=type(chosen))
    table = {**table, "minutes": float(minutes)}
    sizes = table.setdefault("model", {})
    if (sizes.get("layers"), sizes.get("width")) != (chosen.model.layers, chosen.model.width):
        sizes.pop("feedforward", None)
    sizes.update({name: getattr(chosen.model, name) for name in ("layers", "width", "heads")})
    table.setdefault("optimizer", {})["learning_rate"] = chosen.optimizer.learning_rate
    table.setdefault("training", {}).pop("steps", None)
    table["training"]["device"] = chosen.training.device
    text = f"# {Path(name).stem} as {best.size.name}, which `osbert plan` found best for {minutes:g} minutes.\n"
    text += recipe.dump(table)
    with writing_output(out) as path:
        path.write_text(f"{OURS.format(_seal(text))}\n{text}", encoding="utf-8", newline="")


def check_out(out: Path) -> None:
    """Raise UserError when what is at `out` is not a recipe that `write_recipe` wrote and nobody changed."""
    from osbert.files import is_stream

    if out.is_dir():
        raise UserError(f"{out}: this is a folder, and a file is to be written. Give another --out.")
    if out.exists() and not is_stream(out):
        first, _, text = out.read_text(encoding="utf-8", errors="replace").partition("\n")
        if first != OURS.format(_seal(text)):
            raise UserError(f"{out} is there already, and is not as `osbert plan` wrote it. Give another --out.")


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _short(number: float) -> str:
    """Return a number in three digits: 950, "1.49M", "12.3G"."""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{letter}" if number < 999.5 * unit else f"{number / unit:.0f}{letter}"
    return f"{number:.0f}"


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False)
