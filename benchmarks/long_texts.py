"""States of one long text on the CPU: osbert beside transformers, base shape, seconds and memory.

    python benchmarks/long_texts.py [--model modernbert] [--lengths 512,2048,8192] [--rounds 3] [--layers 22]
        [--sides osbert,sdpa,eager] [--clock wall] [--most-gib 12] [--most-minutes 3]

Models: "modernbert" (rotary positions, local layers), "deberta" (disentangled attention), "xlnet" (relative distances),
"t5" (the encoder alone: learned biases of distances). Each side and length is a process of its own, which opens one
folder with fresh weights and encodes one text of random pieces. In each round every side takes its turn, and another
one goes first. Sides: osbert, whose memory grows with the length, and so does the time of its local layers;
transformers with attn_implementation="sdpa" and "eager", which mask or bias a square. DeBERTa and XLNet have "eager"
alone. A side of transformers is not run at a length where its memory or time is expected to exceed --most-gib or
--most-minutes; `expected` extrapolates from the lengths before.
Printed: the median seconds, the peak of resident memory while encoding, above that of the opened model, the ratio in
seconds of one round (above 1, osbert is the faster) with its range, and the largest difference of the states. --clock
processor counts the process's own seconds, on a machine that other work uses as well.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.interop.folder import open_folder
from osbert.training.probe import peak_memory, reset_memory, resident_memory
from osbert.training.processor import Processor

OURS = "osbert"
SIDES = {
    "modernbert": (OURS, "sdpa", "eager"),
    "deberta": (OURS, "eager"),
    "xlnet": (OURS, "eager"),
    "t5": (OURS, "sdpa", "eager"),
}
"""The sides of each model."""
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
CPU = Processor(device=torch.device("cpu"), precision="fp32")
PIECES = 30_000


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """What one encoding took, its memory above the opened model's, and its states (tokens, 768)."""

    seconds: float
    mebibytes: float
    states: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The medians of a side at one length."""

    seconds: float
    mebibytes: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to measure: the number of rounds, the name of the clock, and the most that transformers may take."""

    rounds: int
    clock: str
    most: Cost

    def forbids(self, cost: Cost) -> bool:
        """Return whether a cost is above the most."""
        return cost.mebibytes > self.most.mebibytes or cost.seconds > self.most.seconds


def expected(length: int, known: Mapping[int, Cost]) -> Cost:
    """Return the cost at a length: a L + b L^2 through the two longest known lengths, b L^2 if there is only one.

    >>> expected(4, {1: Cost(seconds=3, mebibytes=10), 2: Cost(seconds=10, mebibytes=40)})
    Cost(seconds=36.0, mebibytes=160.0)
    """
    lengths = sorted(known)[-2:]
    powers = (1, 2)[-len(lengths) :]
    matrix = [[float(one) ** power for power in powers] for one in lengths]
    values = [[known[one].seconds, known[one].mebibytes] for one in lengths]
    seconds, mebibytes = [float(length) ** power for power in powers] @ np.linalg.solve(matrix, values)
    return Cost(seconds=round(float(seconds), 2), mebibytes=round(float(mebibytes), 2))


def fresh(model: str, layers: int) -> transformers.PreTrainedModel:
    """Return transformers' model of base shape with fresh weights."""
    torch.manual_seed(0)
    if model == "modernbert":
        return transformers.ModernBertModel(transformers.ModernBertConfig(num_hidden_layers=layers))
    if model == "xlnet":
        sizes = {"d_model": 768, "n_head": 12, "d_inner": 3_072, "n_layer": layers}
        return transformers.XLNetModel(transformers.XLNetConfig(vocab_size=PIECES, **sizes))
    if model == "t5":  # osbert opens T5 with its decoder alone, so that there is one, which neither side runs
        sizes = {"d_model": 768, "num_heads": 12, "d_kv": 64, "d_ff": 3_072, "num_layers": layers}
        return transformers.T5Model(transformers.T5Config(vocab_size=PIECES, num_decoder_layers=1, **sizes))
    return transformers.DebertaV2Model(
        transformers.DebertaV2Config(
            vocab_size=PIECES,
            hidden_size=768,
            num_hidden_layers=layers,
            num_attention_heads=12,
            intermediate_size=3_072,
            relative_attention=True,
            position_buckets=256,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            type_vocab_size=0,
        )
    )


def write(folder: Path, model: str, *, layers: int) -> None:
    """Write a model with fresh weights, as transformers does."""
    transformers.utils.logging.disable_progress_bar()
    fresh(model, layers).save_pretrained(folder)


def encode(side: str, folder: Path, length: int, threads: int, clock: str) -> Encoding:
    """Return one encoding of a text of `length` tokens by a side."""
    torch.set_num_threads(threads)
    ids, now = np.random.default_rng(0).integers(1_000, PIECES, size=length), CLOCKS[clock]
    with torch.inference_mode():
        encoded = opened(side, folder)
        encoded(ids[:64])
        reset_memory(CPU)
        before, started = resident_memory(), now()
        states = encoded(ids)
        seconds = now() - started
        return Encoding(seconds=seconds, mebibytes=(peak_memory(CPU) - before) / 2**20, states=states.numpy())


def opened(side: str, folder: Path) -> Callable[[np.ndarray], torch.Tensor]:
    """Return what gives a side's states (tokens, 768) of a text's ids."""
    if side == OURS:
        backbone = open_folder(folder).backbone.eval()
        return lambda ids: backbone(_batch(ids)).hidden
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # T5's encoder leaves the weights of the decoder unread
    kind = transformers.AutoConfig.from_pretrained(folder).model_type
    reader = transformers.T5EncoderModel if kind == "t5" else transformers.AutoModel
    model = reader.from_pretrained(folder, attn_implementation=side).eval()
    return lambda ids: model(torch.from_numpy(ids)[None]).last_hidden_state[0]


def _batch(ids: np.ndarray) -> Batch:
    none = np.zeros(len(ids), np.bool_)
    return collate([Example(ids=ids, segments=np.zeros(len(ids), np.int8), words=none, special=none)])


def measure(folder: Path, sides: Sequence[str], length: int, plan: Plan) -> dict[str, list[Encoding]]:
    """Return each side's encodings, one a round, measured in turns."""
    context, threads = multiprocessing.get_context("spawn"), torch.get_num_threads()
    found: dict[str, list[Encoding]] = {side: [] for side in sides}
    for turn in range(plan.rounds):
        for side in (*sides[turn % len(sides) :], *sides[: turn % len(sides)]):
            with ProcessPoolExecutor(1, context) as pool:
                found[side].append(pool.submit(encode, side, folder, length, threads, plan.clock).result())
    return found


def compare(folder: Path, sides: Sequence[str], lengths: Sequence[int], plan: Plan) -> None:
    """Measure the sides at all lengths, the shortest first, and print the lines of the table."""
    known: dict[str, dict[int, Cost]] = {side: {} for side in sides}
    for length in sorted(lengths):
        future = {side: expected(length, costs) for side, costs in known.items() if side != OURS and costs}
        left_out = {side: cost for side, cost in future.items() if plan.forbids(cost)}
        found = measure(folder, [side for side in sides if side not in left_out], length, plan)
        for side, measured in found.items():
            seconds = statistics.median(one.seconds for one in measured)
            mebibytes = statistics.median(one.mebibytes for one in measured)
            known[side][length] = Cost(seconds=seconds, mebibytes=mebibytes)
            beside = _beside(measured, found[OURS])
            print(f"| {length:,} | {side} | {seconds:.2f} s | {mebibytes:,.0f} MiB | {beside} |", flush=True)
        for side, cost in left_out.items():
            estimate = f"about {cost.seconds:.0f} s | about {cost.mebibytes:,.0f} MiB"
            print(f"| {length:,} | {side} | not run: {estimate} | | |", flush=True)


def _beside(measured: Sequence[Encoding], ours: Sequence[Encoding]) -> str:
    """Return the cells that compare a side with osbert: the ratio with its range, and the largest difference."""
    ratios = sorted(theirs.seconds / own.seconds for theirs, own in zip(measured, ours, strict=True))
    difference = np.abs(measured[0].states - ours[0].states).max()
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {difference:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(SIDES), default="modernbert")
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--sides", help="with commas between, osbert among them; all that the model has")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    parser.add_argument("--most-gib", type=float, default=12)
    parser.add_argument("--most-minutes", type=float, default=3)
    options = parser.parse_args()
    sides = options.sides.split(",") if options.sides else SIDES[options.model]
    lengths = [int(length) for length in options.lengths.split(",")]
    most = Cost(seconds=60 * options.most_minutes, mebibytes=1024 * options.most_gib)
    print(
        f"{options.model}, {torch.get_num_threads()} threads, {options.layers} layers of 768, {options.rounds} rounds, "
        f"{options.clock} time\n"
    )
    print("| tokens | side | time | memory above the model's | time : osbert's | largest difference |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.model, layers=options.layers)
        compare(Path(folder), sides, lengths, Plan(rounds=options.rounds, clock=options.clock, most=most))


if __name__ == "__main__":
    main()
