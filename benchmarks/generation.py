"""Pieces written a second, beside transformers' generate, on GPT-2-shaped and T5-shaped models with random weights.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/generation.py [--shape gpt2] [--layers 12] [--width 768]
        [--vocabulary 50257] [--prompt 64] [--most 64] [--rows 1,32] [--beams 1,4] [--precision fp32] [--repeats 3]
        [--threads 1]

Both write the same number of pieces after the same prompts, in turns; that they write the same ones is counted, too. No
text ends before: no piece is its end. The first turn is not counted: in it osbert lays its weights out. Prints the
median of the ratios and their range, by the time of the clock, and by the processor time of the process, which is
fairer on a machine that others use.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from osbert.data.example import Example
from osbert.interop.folder import open_folder
from osbert_lab.writing.contract import CachedDecoder
from osbert_lab.writing.decoders import decoder_of
from osbert_lab.writing.search import Limits, WrittenRow, write
from osbert_lab.writing.settings import GenerationOptions

NUMBERS = {"layers": 12, "width": 768, "vocabulary": 50257, "prompt": 64, "most": 64, "repeats": 3, "threads": 1}


class Seconds(NamedTuple):
    """What some work took, by the clock and of the processor."""

    clock: float
    processor: float


def timed(work: Callable[[], list[list[int]]]) -> tuple[Seconds, list[list[int]]]:
    """Return the seconds that some work takes, and what it gives."""
    begin = time.perf_counter(), time.process_time()
    found = work()
    return Seconds(time.perf_counter() - begin[0], time.process_time() - begin[1]), found


def theirs(model: Any, ids: torch.Tensor, most: int, beams: int) -> list[list[int]]:
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=most,
        num_beams=beams,
        do_sample=False,
        length_penalty=0.0,
        pad_token_id=0,
        eos_token_id=None,
    )
    return [row[-most:] for row in out.tolist()]


def example(ids: Any, **columns: Any) -> Example:
    flags = np.zeros(len(ids), np.bool_)
    return Example(ids=np.array(ids), segments=flags.astype(np.int8), words=~flags, special=flags, **columns)


@torch.inference_mode()
def ours(decoder: CachedDecoder, ids: torch.Tensor, most: int, beams: int, *, reads: bool) -> list[list[int]]:
    rows = ids.numpy()
    prompts = [example([0], source=example(row)) if reads else example(row) for row in rows]
    events = list(write(decoder, prompts, GenerationOptions(most=most, beams=beams), Limits()))
    found = {event.row: list(event.pieces) for event in events if isinstance(event, WrittenRow)}
    return [found[number] for number in range(len(prompts))]


def made(given: argparse.Namespace) -> Any:
    """Return one of their models with random weights."""
    torch.manual_seed(0)
    layers, width, heads = given.layers, given.width, given.width // 64
    if given.shape == "gpt2":
        length = given.prompt + given.most
        sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": length}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=given.vocabulary, **sizes)).eval()
    sizes = {"num_layers": layers, "d_model": width, "num_heads": heads, "d_ff": 4 * width}
    starts = {"decoder_start_token_id": 0, "pad_token_id": 0}
    config = transformers.T5Config(vocab_size=given.vocabulary, **sizes, **starts)
    return transformers.T5ForConditionalGeneration(config).eval()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--shape", choices=["gpt2", "t5"], default="gpt2")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--rows", default="1,32")
    parser.add_argument("--beams", default="1,4")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    peer = made(given)
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        opened = open_folder(Path(folder))
        decoder = decoder_of(opened.backbone.eval(), opened.heads["mlm"].eval())
    assert decoder is not None
    decoder = decoder.fresh(given.precision)
    if given.precision == "bf16":
        peer = peer.to(torch.bfloat16)
    sizes = f"{given.layers} layers of {given.width}, {given.vocabulary:,} pieces"
    print(f"{given.shape}: {sizes}, {given.precision}, {torch.get_num_threads()} threads")
    reads = given.shape == "t5"
    for rows, beams in itertools.product(map(int, given.rows.split(",")), map(int, given.beams.split(","))):
        ids = torch.randint(1, given.vocabulary, (rows, given.prompt))
        seconds: list[tuple[Seconds, Seconds]] = []
        for _ in range(given.repeats + 1):
            one, written = timed(lambda: ours(decoder, ids, given.most, beams, reads=reads))  # noqa: B023
            other, expected = timed(lambda: theirs(peer, ids, given.most, beams))  # noqa: B023
            seconds.append((one, other))
        del seconds[0]
        same = sum(left == right for left, right in zip(written, expected, strict=True))
        count = rows * given.most
        print(f"rows {rows}, beams {beams}: the same in {same} of {rows}")
        for kind in Seconds._fields:
            pairs = [(getattr(one, kind), getattr(other, kind)) for one, other in seconds]
            ratios = [other / one for one, other in pairs]
            print(
                f"  {kind}: {count / min(one for one, _ in pairs):,.1f} pieces/s, transformers "
                f"{count / min(other for _, other in pairs):,.1f}: {statistics.median(ratios):.2f} times "
                f"({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
