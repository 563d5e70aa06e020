"""States of one long text on the CPU: osbert beside transformers, base shape, seconds and memory.

    python benchmarks/long_texts.py [--model modernbert] [--lengths 512,2048,8192] [--rounds 3] [--layers 22]
        [--sides osbert,sdpa,eager]

Models: "modernbert" (rotary positions, local layers), "deberta" (disentangled attention), "xlnet" (relative distances).
Each side and length is a process of its own, which opens one folder with fresh weights and encodes one text of random
pieces. In each round every side takes its turn, and another one goes first. Sides: osbert, whose memory grows with the
length, and so does the time of its local layers; transformers with attn_implementation="sdpa" and "eager", which mask a
square. DeBERTa and XLNet have "eager" alone.
Printed: the median seconds, the peak of resident memory while encoding, above that of the opened model, the ratio in
seconds of one round (above 1, osbert is the faster) with its range, and the largest difference of the states.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
import transformers

from osbert.data.batch import Batch, collate
from osbert.data.example import Example
from osbert.interop.folder import open_folder

OURS = "osbert"
SIDES = {"modernbert": (OURS, "sdpa", "eager"), "deberta": (OURS, "eager"), "xlnet": (OURS, "eager")}
"""The sides of each model."""
PIECES = 30_000


def fresh(model: str, layers: int) -> transformers.PreTrainedModel:
    """Return transformers' model of base shape with fresh weights."""
    torch.manual_seed(0)
    if model == "modernbert":
        return transformers.ModernBertModel(transformers.ModernBertConfig(num_hidden_layers=layers))
    if model == "xlnet":
        sizes = {"d_model": 768, "n_head": 12, "d_inner": 3_072, "n_layer": layers}
        return transformers.XLNetModel(transformers.XLNetConfig(vocab_size=PIECES, **sizes))
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


def encode(side: str, folder: Path, length: int, threads: int) -> tuple[float, float, np.ndarray]:
    """Return the seconds of one encoding, the MiB it took above the opened model's, and the states (length, 768)."""
    torch.set_num_threads(threads)
    ids = np.random.default_rng(0).integers(1_000, PIECES, size=length)
    with torch.inference_mode():
        encoded = opened(side, folder)
        encoded(ids[:64])
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew (Linux)
        before, started = _status("VmRSS"), time.perf_counter()
        states = encoded(ids)
        seconds = time.perf_counter() - started
        return seconds, _status("VmHWM") - before, states.numpy()


def opened(side: str, folder: Path) -> Callable[[np.ndarray], torch.Tensor]:
    """Return what gives a side's states (tokens, 768) of a text's ids."""
    if side == OURS:
        backbone = open_folder(folder).backbone.eval()
        return lambda ids: backbone(_batch(ids)).hidden
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation=side).eval()
    return lambda ids: model(torch.from_numpy(ids)[None]).last_hidden_state[0]


def _batch(ids: np.ndarray) -> Batch:
    none = np.zeros(len(ids), np.bool_)
    return collate([Example(ids=ids, segments=np.zeros(len(ids), np.int8), words=none, special=none)])


def _status(name: str) -> float:
    """Return an entry of this process's memory, in mebibytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def compare(folder: Path, sides: Sequence[str], length: int, rounds: int) -> None:
    """Measure the sides at one length and print the lines of the table."""
    context, threads = multiprocessing.get_context("spawn"), torch.get_num_threads()
    found: dict[str, list[tuple[float, float, np.ndarray]]] = {side: [] for side in sides}
    for turn in range(rounds):
        for side in (*sides[turn % len(sides) :], *sides[: turn % len(sides)]):
            with ProcessPoolExecutor(1, context) as pool:
                found[side].append(pool.submit(encode, side, folder, length, threads).result())
    ours = [seconds for seconds, _, _ in found[OURS]]
    for side, measured in found.items():
        ratios = sorted(theirs / own for (theirs, _, _), own in zip(measured, ours))
        seconds, memory = (statistics.median(one[place] for one in measured) for place in (0, 1))
        difference = np.abs(measured[0][2] - found[OURS][0][2]).max()
        print(
            f"| {length:,} | {side} | {seconds:.2f} s | {memory:,.0f} MiB | {statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}) | {difference:.1e} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(SIDES), default="modernbert")
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--sides", help="with commas between; all that the model has")
    options = parser.parse_args()
    sides = options.sides.split(",") if options.sides else SIDES[options.model]
    print(
        f"{options.model}, {torch.get_num_threads()} threads, {options.layers} layers of 768, {options.rounds} rounds\n"
    )
    print("| tokens | side | time | memory above the model's | time : osbert's | largest difference |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.model, layers=options.layers)
        for length in options.lengths.split(","):
            compare(Path(folder), sides, int(length), options.rounds)


if __name__ == "__main__":
    main()
