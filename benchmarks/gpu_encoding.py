"""The stage of gpu.py that encodes: generated texts to vectors, osbert beside transformers on one GPU, in turns.

    osbert bf16, fp32     osbert.load(folder).embed, the mean of the last layer's states, 65,536 tokens a batch
    best bf16             transformers' model in bf16 under sdpa, texts sorted by length, 256 a batch, the mean over the
                          mask on the GPU
    plain fp32            transformers as it comes: fp32, 32 texts a batch in the order given, padded to the longest

Models have the published shapes and fresh weights; texts are words drawn by Zipf's law, of lengths like a forum's.
Every side tokenizes, and gives its vectors as one array in memory. Vectors are compared with plain fp32's.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import osbert
from osbert.interop.huggingface.folders import write_model
from osbert.interop.tokenizers import write_tokenizer
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.text.tokenizer import SPECIALS, Tokenizer

if TYPE_CHECKING:
    from gpu import Account

SHAPES = {"base": (12, 768, 12), "minilm": (6, 384, 12)}
"""Layers, width and heads by name."""
VOCABULARY, TEXTS, ROUNDS = 30_522, 5_000, 5
TOKENS, BEST, PLAIN = 65_536, 256, 32
LEAST = 20.0
"""No model is begun with fewer seconds left."""

Encode = Callable[[Sequence[str]], np.ndarray]


def words(count: int) -> list[str]:
    """Return so many words of one to four syllables, the shortest first."""
    syllables = [first + second for first in "bcdfghjklmnprstvz" for second in ("a", "e", "i", "o", "u", "an", "er")]
    found: list[str] = []
    level = [""]
    while len(found) < count:
        level = [word + syllable for word in level for syllable in syllables]
        found += level[: count - len(found)]
    return found


def vocabulary(count: int) -> Tokenizer:
    """Return a tokenizer of `count` pieces; one word in ten of `words` is not among them and falls into pieces."""
    inner = [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    letters = [letter.removeprefix("##") for letter in inner]
    left = count - len(SPECIALS) - len(inner) - len(letters)
    whole = [word for place, word in enumerate(words(2 * left)) if place % 10][:left]
    return Tokenizer([*SPECIALS, *letters, *inner, *whole])


def texts(count: int) -> list[str]:
    """Return texts of 4 to 300 words, half of them under 20, the words drawn by Zipf's law."""
    rng = np.random.default_rng(0)
    known = words(VOCABULARY)
    lengths = np.clip(np.exp(rng.normal(np.log(20), 0.8, count)), 4, 300).astype(int)
    return [" ".join(known[int(rank)] for rank in len(known) ** rng.random(length) - 1) for length in lengths]


def make_model(shape: tuple[int, int, int], folder: Path) -> Path:
    """Write a model of a shape with fresh weights, and its tokenizer, as Hugging Face has them."""
    layers, width, heads = shape
    tokenizer = vocabulary(VOCABULARY)
    torch.manual_seed(0)
    architecture = Architecture(layers=layers, width=width, heads=heads, vocabulary=len(tokenizer))
    write_model(Learner(architecture.build(), {}), folder)
    write_tokenizer(tokenizer, folder)
    return folder


def ours(folder: Path, device: str, precision: str) -> Encode:
    """Return osbert's way to encode."""
    engine = osbert.load(folder)

    def encode(given: Sequence[str]) -> np.ndarray:
        half = torch.autocast(device, dtype=torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
        with half:
            return engine.embed(given, pooling="mean", tokens=TOKENS)

    return encode


def theirs(folder: Path, device: str, *, best: bool) -> Encode:
    """Return transformers' way: in bf16 and sorted by length, or as it comes."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind = torch.bfloat16 if best else torch.float32
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa").to(device, kind).eval()
    size = BEST if best else PLAIN

    @torch.inference_mode()
    def encode(given: Sequence[str]) -> np.ndarray:
        order = sorted(range(len(given)), key=lambda place: -len(given[place])) if best else [*range(len(given))]
        found = []
        for first in range(0, len(order), size):
            part = [given[place] for place in order[first : first + size]]
            columns = tokenizer(part, padding=True, truncation=True, max_length=512, return_tensors="pt").to(device)
            states = model(**columns).last_hidden_state
            mask = columns["attention_mask"][..., None]
            found.append((states * mask).sum(1).float() / mask.sum(1))
        vectors = np.empty((len(given), found[0].shape[1]), np.float32)
        vectors[order] = torch.cat(found).cpu().numpy()
        return vectors

    return encode


def sides(folder: Path, device: str) -> dict[str, Callable[[], Encode]]:
    """Return what makes each side, the one that others are compared with first."""
    return {
        "plain fp32": lambda: theirs(folder, device, best=False),
        "osbert bf16": lambda: ours(folder, device, "bf16"),
        "best bf16": lambda: theirs(folder, device, best=True),
        "osbert fp32": lambda: ours(folder, device, "fp32"),
    }


def measure(account: Account, chosen: argparse.Namespace) -> None:
    """Measure every model; each has an equal share of the time that is left."""
    shapes = SHAPES if not chosen.small else {"tiny": (1, 64, 1)}
    some = texts(24 if chosen.small else TEXTS)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, shape) in enumerate(shapes.items()):
            left = account.clock.left / (len(shapes) - number)
            if left < LEAST and not (chosen.small and left):
                account.leave_out(name)
                continue
            made = make_model(shape, Path(folder) / name)
            compare(account, name, sides(made, chosen.device), some, until=account.clock.spent + left)


def compare(
    account: Account, name: str, makers: Mapping[str, Callable[[], Encode]], some: Sequence[str], *, until: float
) -> None:
    """Let the sides of a model take turns until the time is up."""
    encoders: dict[str, Encode] = {}
    kept: dict[str, dict[str, Any]] = {}
    seconds: dict[str, list[float]] = {}
    reference: np.ndarray | None = None
    for turn in range(ROUNDS):
        for side, make in makers.items():
            if side in kept and "error" in kept[side]:
                continue
            longest = max((taken[-1] for taken in seconds.values()), default=0.0)
            if account.clock.spent + longest > until or not account.clock.left:
                if not turn:
                    account.leave_out(f"{name}, {side}")
                continue
            try:
                if not turn:
                    encoders[side] = make()
                    encoders[side](some[: len(some) // 5])  # warms up
                vectors, taken, memory = timed(encoders[side], some)
            except Exception as error:
                kept[side] = account.add(
                    model=name, side=side, error=f"{name}, {side}: {type(error).__name__}: {error}"
                )
                continue
            reference = vectors if reference is None else reference
            seconds.setdefault(side, []).append(taken)
            if side not in kept:
                kept[side] = account.add(model=name, side=side, cosine=smallest_cosine(vectors, reference))
            show(account, kept, seconds, (name, side, len(some), memory))


def timed(encode: Encode, some: Sequence[str]) -> tuple[np.ndarray, float, float | None]:
    """Return the vectors, the seconds they took, and the peak of the GPU's memory in MB."""
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    vectors = encode(some)
    taken = time.perf_counter() - started
    return vectors, taken, torch.cuda.max_memory_allocated() / 1e6 if cuda else None


def smallest_cosine(found: np.ndarray, reference: np.ndarray) -> float:
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(reference, axis=1)
    return float(((found * reference).sum(1) / lengths).min())


def show(
    account: Account,
    kept: Mapping[str, dict[str, Any]],
    seconds: Mapping[str, Sequence[float]],
    measured: tuple[str, str, int, float | None],
) -> None:
    """Bring a side's measurement and its row up to date; the others' ratios change with osbert's rounds."""
    model, side, count, memory = measured
    rate = count / statistics.median(seconds[side])
    own = seconds.get("osbert bf16")
    ratio = statistics.median(b / a for a, b in zip(own, seconds[side])) if own else None
    row = [
        *(model, side, f"{rate:,.0f}", f"{ratio:.2f}" if ratio else "", f"{memory:,.0f}" if memory else ""),
        f"{kept[side]['cosine']:.5f}",
    ]
    facts = {"texts": count, "rate": rate, "osbert_over_it": ratio, "memory_mb": memory}
    account.change(kept[side], row, **facts, seconds=list(seconds[side]))
