"""Pieces written a second, beside transformers' generate, on a GPT-2-shaped model with random weights.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/generation.py [--layers 12] [--width 768] [--vocabulary 50257]
        [--prompt 64] [--most 64] [--rows 1,32] [--beams 1,4] [--repeats 3]

Both write the same number of pieces after the same prompts, in turns; that they write the same ones is said, too. No
text ends before: no piece is its end. Prints the best of the repeats, the median of the ratios and their range.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers

from osbert.data.example import Example
from osbert.interop.folder import open_folder
from osbert.models.families.transformer import Transformer
from osbert.models.generation.left_to_right import LeftToRightDecoder
from osbert.models.generation.search import Limits, WrittenRow, write
from osbert.models.generation.settings import GenerationOptions
from osbert.models.heads.predictions import MaskedLanguageHead


def timed(work: Callable[[], list[list[int]]]) -> tuple[float, list[list[int]]]:
    """Return the seconds that some work takes, and what it gives."""
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


def theirs(model: transformers.PreTrainedModel, ids: torch.Tensor, most: int, beams: int) -> list[list[int]]:
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
    return [row[ids.shape[1] :] for row in out.tolist()]


@torch.inference_mode()
def ours(decoder: LeftToRightDecoder, ids: torch.Tensor, most: int, beams: int) -> list[list[int]]:
    length = ids.shape[1]
    prompts = [
        Example(
            ids=row, segments=np.zeros(length, np.int8), words=np.ones(length, bool), special=np.zeros(length, bool)
        )
        for row in ids.numpy()
    ]
    events = list(write(decoder, prompts, GenerationOptions(most=most, beams=beams), Limits()))
    rows = {event.row: list(event.pieces) for event in events if isinstance(event, WrittenRow)}
    return [rows[number] for number in range(len(prompts))]


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {
        "layers": 12,
        "width": 768,
        "vocabulary": 50257,
        "prompt": 64,
        "most": 64,
        "repeats": 3,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rows", default="1,32")
    parser.add_argument("--beams", default="1,4")
    given = parser.parse_args()
    config = transformers.GPT2Config(
        n_layer=given.layers,
        n_embd=given.width,
        n_head=given.width // 64,
        vocab_size=given.vocabulary,
        n_positions=given.prompt + given.most,
    )
    torch.manual_seed(0)
    peer = transformers.GPT2LMHeadModel(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        opened = open_folder(Path(folder))
        backbone, head = opened.backbone, opened.heads["mlm"]
    assert isinstance(backbone, Transformer) and isinstance(head, MaskedLanguageHead)
    decoder = LeftToRightDecoder(backbone.eval(), head.eval())
    print(f"{given.layers} layers of {given.width}, {given.vocabulary:,} pieces, {torch.get_num_threads()} threads")
    for rows, beams in itertools.product(map(int, given.rows.split(",")), map(int, given.beams.split(","))):
        ids = torch.randint(0, given.vocabulary, (rows, given.prompt))
        seconds: list[tuple[float, float]] = []
        for _ in range(given.repeats):
            one, written = timed(lambda: ours(decoder, ids, given.most, beams))  # noqa: B023
            other, expected = timed(lambda: theirs(peer, ids, given.most, beams))  # noqa: B023
            seconds.append((one, other))
        ratios = [other / one for one, other in seconds]
        count = rows * given.most
        same = sum(left == right for left, right in zip(written, expected, strict=True))
        print(
            f"rows {rows}, beams {beams}: {count / min(one for one, _ in seconds):,.1f} pieces/s, transformers "
            f"{count / min(other for _, other in seconds):,.1f}: {statistics.median(ratios):.2f} times "
            f"({min(ratios):.2f} to {max(ratios):.2f}); the same in {same} of {rows}",
            flush=True,
        )


if __name__ == "__main__":
    main()
