"""What a memory is worth: transformer-xl-small with and without one, equal tokens, perplexity a word on unseen novels.

    python benchmarks/stream_memory.py --texts NOVELS --out FOLDER [--unseen 7] [--vocabulary 4000] [--steps 2000]
        [--length 64] [--sides distances/64 distances/0 learned/64]
        [--memories 0 64 128 256] [--streams 16] [--most 200_000]

NOVELS is a folder of .txt files, of which every n-th is kept unseen. Each side, POSITIONS/MEMORY, is trained by
`osbert pretrain` on the same streams of the others, 2,048 tokens a step. Then the first `--most` tokens of the unseen
novels are read as `--streams` columns with each memory of `--memories`, and once more with every stream's memory given
to the next one (control). A word is a piece that begins one: punctuation counts. What is in FOLDER already is not made
again.
"""

from __future__ import annotations

import argparse
import itertools
import math
from pathlib import Path

import torch

import osbert
from osbert.corpus.shards import Corpus
from osbert.data.loader import LoaderSettings
from osbert.data.pack import Packer
from osbert.data.step import Cursor
from osbert.interop.folder import open_folder
from osbert.models.contract import Learner
from osbert.models.memory import Memory, Past
from osbert.objectives.left_to_right import LeftToRight
from osbert_lab.autoregressive.streams import StreamLoader

RECIPE = "transformer-xl-small"


def main() -> None:
    options = arguments()
    seen, unseen = corpora(options)
    print("| trained with | evaluation memory | perplexity a word | another stream's memory |\n|---|---:|---:|---:|")
    for side in options.sides:
        positions, memory = side.split("/")
        run = options.out / side.replace("/", "-")
        if not (run / "model.safetensors").exists():
            model = {"model_positions": positions, "model_memory": int(memory), "data_length": options.length}
            steps = {"steps": options.steps, "data_batch": 2048 // options.length, "evaluate_every": 0}
            osbert.pretrain(RECIPE, corpus=seen, out=run, device="cpu", precision="fp32", **model, **steps)
        for length in options.memories:
            own = perplexity(run, unseen, length, options)
            other = perplexity(run, unseen, length, options, shift=1) if length else math.nan
            print(f"| {positions}, memory {memory} | {length} | {own:.1f} | {other:.1f} |", flush=True)


def corpora(options: argparse.Namespace) -> tuple[Path, Path]:
    """Return the folders of the corpora of the novels to train on, and of the unseen ones."""
    files = sorted(options.texts.rglob("*.txt"))
    every = len(files) // options.unseen
    parts = {"unseen": files[::every][: options.unseen]}
    parts["seen"] = [file for file in files if file not in parts["unseen"]]
    vocabulary = options.out / "vocabulary"
    if not vocabulary.exists():
        osbert.train_tokenizer(parts["seen"], out=vocabulary, vocabulary=options.vocabulary)
    for name, some in parts.items():
        if not (options.out / name).exists():
            osbert.build_corpus(some, tokenizer=vocabulary, out=options.out / name, documents="file")
    return options.out / "seen", options.out / "unseen"


@torch.no_grad()
def perplexity(run: Path, corpus: Path, memory: int, options: argparse.Namespace, *, shift: int = 0) -> float:
    """Return the perplexity a word; `shift`: how many streams further each one's memory is given."""
    learner, tokenizer = learner_of(run), open_folder(run).tokenizer
    settings = LoaderSettings(batch=options.streams, held_out=0.0)
    packer = Packer(tokenizer=tokenizer, length=options.length)
    loader = StreamLoader(Corpus.open(corpus), {"left_to_right": LeftToRight()}, packer, settings)
    if memory:
        sizes = learner.backbone.architecture
        learner.memory = ShiftedMemory(streams=options.streams, layers=sizes.layers, length=memory, width=sizes.width)
        learner.memory.shift = shift
    learner.eval()
    continuation = torch.from_numpy(tokenizer.continuation)
    nats = words = 0.0
    for step in itertools.islice(loader.steps(Cursor()), options.most // (options.streams * options.length)):
        for batch in step.batches:
            nats += learner(batch)["left_to_right"].total.item()
            words += (~continuation[batch.targets["left_to_right"].labels]).sum().item()
    return math.exp(nats / words)


class ShiftedMemory(Memory):
    """A memory that gives each stream the past of another one; by itself its own."""

    shift = 0

    def of(self, records: torch.Tensor) -> Past:
        return super().of(records.roll(self.shift))


def learner_of(run: Path) -> Learner:
    """Return the backbone of a run with its language-model head."""
    folder = open_folder(run)
    learner = Learner(folder.backbone, {"left_to_right": LeftToRight().head(folder.backbone)})
    folder.fill(learner)
    return learner


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--unseen", type=int, default=7)
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--sides", nargs="+", default=["distances/64", "distances/0", "learned/64"])
    parser.add_argument("--memories", nargs="+", type=int, default=[0, 64, 128, 256])
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--most", type=int, default=200_000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
