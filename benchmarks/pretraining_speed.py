"""Pretraining speed beside transformers' BertForPreTraining: whole training steps, in turns, each side in a process.

    python benchmarks/pretraining_speed.py [--sizes L4H256,L4H512] [--lengths 128,512] [--device cpu] [--rounds 5]
        [--seconds 8] [--tokens N] [--sides osbert,default,...]

A step is forward, backward, clipping at norm 1 and fused AdamW (what transformers' Trainer takes by default) on the
same examples: pairs as in section A.2 of the paper (one in ten aims at a random shorter length), 15% of the tokens
masked, next sentences, 30,522 pieces drawn by Zipf's law, dropout 0.1. Both sides have their batches ready before the
clock starts; transformers' are padded to their longest sequence. osbert runs its own Trainer as `osbert pretrain` does,
with the numbers it reads and checks at every step.

transformers runs as it comes ("default": fp32) and in each way that might be its best here: sdpa, torch.compile, and
bf16 if the device has it. The fastest of all is called its best. Each side is timed for `--seconds` a round, in turns;
figures are medians, and ratios are medians of each round's ratio. Tokens are true ones, not padding. The peak of memory
is that of a whole step: of the process (its resident set, after warming up and compiling) on a CPU, of torch's
allocations on a GPU. A way of transformers that takes over 4 times its fastest one's time for a step is left out of the
rounds and shown by that one step.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from osbert.data.batch import Batch, micro_batches
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.data.step import Cursor, Step
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner, StepSize
from osbert.models.families.transformer import Transformer
from osbert.objectives.mlm import MaskedLanguage
from osbert.objectives.nsp import NextSentence
from osbert.text.document import Document
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert.training.optimizer import OptimizerSettings
from osbert.training.processor import has_bf16
from osbert.training.settings import TrainingSettings
from osbert.training.trainer import Trainer
from osbert_lab.planning.speed import FORMULA, look_up_peak, training_flops

SIZES = {"base": (12, 768), "large": (24, 1024)}
"""Layers and width by name; others are written L4H256. A head is 64 wide."""
VOCABULARY, DROPOUT, STEPS, PATIENCE = 30_522, 0.1, 4, 4.0
THEIRS = {
    "default": {},
    "sdpa bf16 compiled": {"attention": "sdpa", "bf16": True, "compiled": True},
    "sdpa fp32 compiled": {"attention": "sdpa", "compiled": True},
    "eager fp32 compiled": {"attention": "eager", "compiled": True},
    "sdpa bf16": {"attention": "sdpa", "bf16": True},
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model at one length on one device. `tokens`: about how many make a step."""

    size: str
    length: int
    device: str
    tokens: int

    @property
    def architecture(self) -> Architecture:
        layers, width = SIZES.get(self.size) or map(int, self.size.removeprefix("L").split("H"))
        return Architecture(
            layers=layers,
            width=width,
            heads=width // 64,
            vocabulary=VOCABULARY,
            dropout=DROPOUT,
            attention_dropout=DROPOUT,
        )

    def steps(self) -> list[list[Example]]:
        """Return the examples of some steps, the same in every process."""
        rng = np.random.default_rng(0)
        tokenizer = Tokenizer([*SPECIALS, *(f"piece{number}" for number in range(VOCABULARY - len(SPECIALS)))])
        packer = Packer(tokenizer=tokenizer, length=self.length)
        size = self.tokens // self.length
        examples: list[Example] = []
        while len(examples) < STEPS * size:
            examples += NextSentence().examples([document(rng) for _ in range(64)], packer, rng)
        order = rng.permutation(len(examples))[: STEPS * size]
        examples = [MaskedLanguage().corrupt(examples[place], packer, rng) for place in order]
        return [examples[start : start + size] for start in range(0, len(examples), size)]


def document(rng: np.random.Generator) -> Document:
    """Return 40 sentences of 5 to 40 pieces, the pieces drawn by Zipf's law."""
    lengths = rng.integers(5, 41, size=40)
    ranks = np.exp(rng.random(lengths.sum()) * np.log(VOCABULARY - len(SPECIALS))).astype(np.int32)
    return Document(
        ids=ranks + len(SPECIALS) - 1,
        sentences=np.concatenate([[0], lengths.cumsum()]),
        words=np.ones(lengths.sum(), np.bool_),
    )


class Endless:
    """A loader that gives the same few steps again and again."""

    def __init__(self, steps: Sequence[list[Batch]]) -> None:
        self.made = steps

    def steps(self, cursor: Cursor) -> Generator[Step, None, None]:
        while True:
            for batches in self.made:
                yield Step(batches=batches, cursor=cursor)


def make_learner(backbone: Transformer) -> Learner:
    objectives = (MaskedLanguage(), NextSentence())
    return Learner(backbone, {objective.name: objective.head(backbone) for objective in objectives})


def osbert_steps(case: Case, options: dict[str, Any]) -> Generator[object, None, None]:
    """Yield after each step of osbert's Trainer."""
    torch.manual_seed(0)
    learner = make_learner(case.architecture.build())
    loader = Endless([micro_batches(examples, options.get("micro_tokens", 0)) for examples in case.steps()])
    settings = TrainingSettings(device=case.device, checkpoint_every=0, evaluate_every=0, **options.get("settings", {}))
    trainer = Trainer(learner, loader, OptimizerSettings(), settings, Path("unused"))
    return trainer.run()


def their_steps(case: Case, options: dict[str, Any]) -> Generator[object, None, None]:
    """Yield after each step of transformers' model in the usual loop."""
    from transformers import BertConfig, BertForPreTraining

    sizes = case.architecture
    config = BertConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=4 * sizes.width,
        hidden_dropout_prob=sizes.dropout,
        attention_probs_dropout_prob=sizes.attention_dropout,
        attn_implementation=options.get("attention"),
    )
    torch.manual_seed(0)
    model = BertForPreTraining(config).to(case.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    run = torch.compile(model, dynamic=False) if options.get("compiled") else model
    steps = [padded(examples, case.length if options.get("compiled") else 0) for examples in case.steps()]
    steps = [{name: column.to(case.device) for name, column in step.items()} for step in steps]
    for step in itertools.cycle(steps):
        with torch.autocast(case.device, dtype=torch.bfloat16, enabled=options.get("bf16", False)):
            loss = run(**step).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield


def padded(examples: Sequence[Example], length: int) -> dict[str, torch.Tensor]:
    """Return examples as the columns transformers takes, as wide as their longest (`length`: no narrower than that).

    A compiled model meets one width only: it would be compiled anew for each other one.
    """
    width = max(length, *map(len, examples))
    shape = (len(examples), width)
    ids, segments, mask = (np.zeros(shape, np.int64) for _ in range(3))
    labels = np.full(shape, -100, np.int64)
    for row, example in enumerate(examples):
        ids[row, : len(example)] = example.ids
        segments[row, : len(example)] = example.segments
        mask[row, : len(example)] = 1
        labels[row, example.targets["mlm"].index] = example.targets["mlm"].labels
    columns = {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": mask,
        "labels": labels,
        "next_sentence_label": np.concatenate([example.targets["nsp"].labels for example in examples]),
    }
    return {name: torch.from_numpy(column) for name, column in columns.items()}


def peak(device: str) -> float:
    """Return the peak of memory in MB since `forget_peak`."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    return resident("VmHWM")


def forget_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is held now


def resident(name: str) -> float:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) / 1e3


def serve(case: Case, side: str, options: dict[str, Any]) -> None:
    """Be one side: warm up, then answer each number of seconds on a line with the steps taken in them."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is no answer
    synchronize = torch.cuda.synchronize if case.device == "cuda" else (lambda: None)
    if side != "osbert":
        from transformers import BertForPreTraining  # noqa: F401 (what the library itself takes is no step's)
    empty = resident("VmRSS")
    training = (osbert_steps if side == "osbert" else their_steps)(case, options)
    tokens = [sum(map(len, examples)) for examples in case.steps()]
    started = time.perf_counter()
    for step in range(STEPS):  # every shape once
        began = time.perf_counter()
        next(training)
        synchronize()
        if step and time.perf_counter() - started > 120:
            break
    single = time.perf_counter() - began
    print(json.dumps({"single": single, "warming": time.perf_counter() - started}), file=answers, flush=True)
    forget_peak(case.device)
    for line in sys.stdin:
        cpu, started, steps = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - started < float(line) or steps % STEPS:  # whole cycles: each step as often
            next(training)
            steps += 1
        synchronize()
        spent = time.perf_counter() - started
        answer = {
            "rate": steps / STEPS * sum(tokens) / spent,
            "cpu_rate": steps / STEPS * sum(tokens) / (time.process_time() - cpu),
            "peak": peak(case.device),
            "above": peak(case.device) - (empty if case.device == "cpu" else 0),
        }
        if case.device == "cuda":
            torch.cuda.empty_cache()  # the card is the other side's now
        print(json.dumps(answer), file=answers, flush=True)
    training.close()


class Side:
    """A process that trains when asked; it begins to warm up at once.

    `left`: how many seconds an answer may take; the process is killed when it takes longer. `log`: for its errors.
    """

    def __init__(
        self,
        case: Case,
        name: str,
        options: dict[str, Any],
        *,
        left: Callable[[], float] | None = None,
        log: IO[str] | None = None,
    ) -> None:
        self.name = name
        self.left = left
        self.cache = tempfile.TemporaryDirectory()  # what another run compiled, or half compiled, is no help
        order = json.dumps({"case": asdict(case), "side": name, "options": options})
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": self.cache.name},
            stderr=log or (None if os.environ.get("SHOW_ERRORS") else subprocess.DEVNULL),
            text=True,
        )
        self.rounds: list[dict[str, float]] = []

    @cached_property
    def warm(self) -> dict[str, float]:
        """Wait until every shape has been trained on once; return the seconds this and a single step took."""
        return self._answer()

    def run(self, seconds: float) -> None:
        assert self.process.stdin
        print(seconds, file=self.process.stdin, flush=True)
        self.rounds.append(self._answer())

    def median(self, name: str) -> float:
        return statistics.median(found[name] for found in self.rounds)

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError), self.process:
            pass  # closes its pipes, at which it ends, and waits for it
        self.cache.cleanup()

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout
        timer = threading.Timer(self.left(), self.process.kill) if self.left else None
        if timer:
            timer.start()
        line = self.process.stdout.readline()
        if timer:
            timer.cancel()
        if not line:
            status = self.process.wait()
            raise RuntimeError(f"{self.name} failed (status {status}); SHOW_ERRORS=1 shows how")
        return json.loads(line)


def measure(case: Case, chosen: argparse.Namespace) -> None:
    """Print the table of one case."""
    sides = []
    bf16 = has_bf16(torch.device(case.device))
    for name, options in {"osbert": json.loads(chosen.osbert), **THEIRS}.items():
        # Emulated bf16 takes minutes to warm up and is never the best: it is measured on request alone.
        if name in chosen.sides.split(",") or not (chosen.sides or (options.get("bf16") and not bf16)):
            side = Side(case, name, options)
            try:
                assert side.warm
                sides.append(side)
            except RuntimeError as error:
                print(f"  {error}")
                side.end()
    fastest = min((side.warm["single"] for side in sides if side.name != "osbert"), default=0.0)
    running = [side for side in sides if side.name == "osbert" or side.warm["single"] <= PATIENCE * fastest]
    for _ in range(chosen.rounds):
        for side in running:
            side.run(chosen.seconds)
    show(case, sides, chosen.clock)
    for side in sides:
        side.end()


def show(case: Case, sides: list[Side], clock: str) -> None:
    flops = flops_a_token(case)
    ceiling = look_up_peak(torch.cuda.get_device_name()) if case.device == "cuda" else None
    print(f"\n{case.size}, {case.length} tokens, {case.device}, {case.tokens // case.length} sequences a step")
    print(f"{'':22}{'tokens/s':>10}{'ours':>8}{'MB':>8}{'ours':>7}{'MB above':>10}{'ours':>7}{'warming':>10}", end="")
    print(f"   share of {ceiling / 1e12:.0f} TFLOP/s" if ceiling else "")
    theirs = [side for side in sides if side.rounds and side.name != "osbert"]
    best = max(theirs, key=lambda side: side.median(clock), default=None)
    ours = sides[0]
    for side in sides:
        name = f"{side.name} (best)" if side is best else side.name
        if not side.rounds:
            print(f"{name:22}left out: {side.warm['single']:.1f} s a step")
            continue
        ratio = statistics.median(a[clock] / b[clock] for a, b in zip(ours.rounds, side.rounds))
        print(f"{name:22}{side.median(clock):10,.0f}{ratio:8.2f}", end="")
        for what, width in (("peak", 8), ("above", 10)):
            print(f"{side.median(what):{width},.0f}{ours.median(what) / side.median(what):7.2f}", end="")
        print(f"{side.warm['warming']:9.0f}s", end="")
        print(f"{side.median(clock) * flops / ceiling:16.1%}" if ceiling else "")
    print(f"{flops / 1e6:.2f} million FLOPs a token. {FORMULA}")


def flops_a_token(case: Case) -> float:
    """Return the FLOPs of osbert's step for each of its tokens: what both sides must do at least."""
    learner = make_learner(case.architecture.empty())
    batches = [batch for examples in case.steps() for batch in micro_batches(examples, 0)]
    size = StepSize.of(learner, batches)
    return training_flops(learner, size) / size.tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="L4H256,L4H512", help="L<layers>H<width>, base or large")
    parser.add_argument("--lengths", default="128,512")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8, help="of each side in a round")
    parser.add_argument("--tokens", type=int, help="in a step; 4,096, on a GPU 32,768")
    parser.add_argument("--sides", default="", help="osbert and any of: " + ", ".join(THEIRS))
    parser.add_argument("--osbert", default="{}", help="osbert's options as JSON: micro_tokens, settings")
    parser.add_argument("--clock", default="rate", choices=("rate", "cpu_rate"), help="cpu_rate: by processor time")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        order = json.loads(chosen.serve)
        serve(Case(**order["case"]), order["side"], order["options"])
        return
    print(f"$ {shlex.join(['python', *sys.argv])}")
    tokens = chosen.tokens or (32_768 if chosen.device == "cuda" else 4_096)
    for size in chosen.sizes.split(","):
        for length in map(int, chosen.lengths.split(",")):
            measure(Case(size=size, length=length, device=chosen.device, tokens=tokens), chosen)


if __name__ == "__main__":
    main()
