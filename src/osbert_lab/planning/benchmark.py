"""The benchmark of pretraining: the speed of a recipe on this machine, and its fraction of the peak."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from osbert import __version__
from osbert.corpus.build import Build
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.tokenizers import write_tokenizer
from osbert.reading.documents import DocumentOptions
from osbert.runs.pretrain.passes import with_passes
from osbert.runs.pretrain.settings import PretrainPlan, read_plan, read_settings, table_of
from osbert.runs.pretrain.speed_test import SpeedTest, phases
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert.training.processor import choose
from osbert_lab.planning.speed import FORMULA, flops_per_token, loader_ceiling, peak

TOKENS = 1_200_000
"""Words in the corpus: enough for one pool of the loader, and some to hold out."""
SENTENCE, DOCUMENT = (8, 40), (5, 40)
"""Fewest and most words of a sentence; fewest and most sentences of a document."""
SIGNS = "abcdefghijklmnopqrstuvwxyz"
FEWEST, MOST = len(SPECIALS) + 3, len(SPECIALS) + 1 + len(SIGNS) ** 4
"""Vocabulary sizes: special tokens, a full stop, and at least two words of four letters."""


def synthetic_corpus(
    folder: Path, *, vocabulary: int, tokens: int = TOKENS, padding: int = 0, document_sentences: int = 0
) -> Corpus:
    """Build a corpus in `folder` of about `tokens` tokens, with a tokenizer of exactly `vocabulary` pieces.

    `padding`: the id of its padding piece. `document_sentences`: of each document; 0 for random numbers of DOCUMENT.

    Word k has a probability of about 1 / (k + 2.7), as in text (Zipf; Mandelbrot's form). The same in every call.
    Raises UserError for a vocabulary that words of four letters cannot fill.
    """
    if not FEWEST <= vocabulary <= MOST:
        raise UserError(
            f"model.vocabulary is {vocabulary:,}, but made-up words need one from {FEWEST} to {MOST:,}. Leave it at 0, "
            "or give a --corpus.",
            code="invalid-value",
        )
    letters = itertools.islice(itertools.product(SIGNS, repeat=4), vocabulary - len(SPECIALS) - 1)
    words = np.array(["".join(four) for four in letters])
    pieces = [".", *words.tolist()]
    tokenizer = Tokenizer([*pieces[:padding], *SPECIALS, *pieces[padding:]])
    probabilities = 1 / (np.arange(len(words)) + 2.7)
    rng = np.random.Generator(np.random.PCG64(0))
    drawn = words[rng.choice(len(words), size=tokens, p=probabilities / probabilities.sum())]
    # More cuts than needed: one for each SENTENCE[0] words, the shortest sentence. Those past the end are dropped.
    cuts = np.cumsum(rng.integers(*SENTENCE, size=tokens // SENTENCE[0]))
    sentences = [" ".join(part) + "." for part in np.split(drawn, cuts[cuts < tokens])]
    ends = np.cumsum(rng.integers(*DOCUMENT, size=len(sentences)))
    if document_sentences:
        ends = np.arange(document_sentences, len(sentences), document_sentences)
    folder.mkdir(parents=True)
    source = folder / "words.txt"
    with source.open("w", encoding="utf-8") as file:
        for start, end in itertools.pairwise([0, *ends[ends < len(sentences)].tolist(), len(sentences)]):
            file.write(" ".join(sentences[start:end]) + "\n")
    settings = BuildSettings(reading=DocumentOptions(documents="line"))
    corpus = folder / "corpus"
    Build.prepare([source], tokenizer=tokenizer, folder=corpus, settings=settings).run()
    write_tokenizer(tokenizer, corpus)
    return Corpus.open(corpus)


RECIPES = {"cpu": "cpu", "cuda": "bert-base"}
"""Default recipe by kind of device."""
VOCABULARY = 30_522
"""Vocabulary size of the synthetic corpus, that of published BERT."""
LOADING = 0.15
"""Fraction of the time in which the loader runs alone."""


def measure_speed(
    recipe: str = "",
    settings: Mapping[str, Any] | None = None,
    *,
    corpus: Path | None = None,
    seconds: float = 20.0,
    opening: Opening = CAREFUL,
) -> dict[str, Any]:
    """Return the measured speed of pretraining by a recipe, after about `seconds` seconds; no files are kept.

    `corpus`: None for a synthetic one. The figures: tokens per second, FLOPs, memory in bytes, and the speed of the
    loader alone, for each phase of the run. Raises UserError as pretraining does.
    """
    if seconds <= 0:
        raise UserError(f"--seconds must be above 0, not {seconds:g}.", code="invalid-value")
    name, settings = recipe or RECIPES[choose().device.type], settings or {}
    chosen = read_settings(name, settings, opening=opening)
    model, objectives = chosen.model, [getattr(chosen, table_of(objective)) for objective in chosen.objectives]
    with tempfile.TemporaryDirectory(prefix="osbert-bench-") as folder:
        if corpus is None:
            corpus = synthetic_corpus(
                Path(folder) / "text",
                vocabulary=model.vocabulary or VOCABULARY,
                padding=max(0, getattr(model, "first_position", 0) - 1),  # positions begin behind it
                document_sentences=max(objective.document_sentences for objective in objectives),
            ).folder
        plan = read_plan(name, settings, corpus=corpus, out=Path(folder) / "run", opening=opening)
        return _figures(with_passes(plan, Path(folder) / "run"), Path(folder) / "run", seconds=seconds)


def _figures(plan: PretrainPlan, scratch: Path, *, seconds: float) -> dict[str, Any]:
    training = plan.settings.training
    processor = choose(training.device, training.precision)
    most = peak(processor)
    test = SpeedTest(plan, scratch)
    parts = phases(plan)
    each = seconds / len(parts)
    return {
        "osbert": __version__,
        "torch": torch.__version__,
        "recipe": plan.name,
        "objectives": list(plan.objectives),
        "parameters": test.parameters,
        "processor": str(processor),
        "threads": torch.get_num_threads(),
        "peak_flops": most.flops,
        "peak_source": most.source,
        "formula": FORMULA,
        "memory_before": test.memory_before,
        "batch": plan.settings.data.batch,
        "micro_tokens": plan.settings.data.micro_tokens,
        "phases": [_phase(test, phase.length, seconds=each, peak_flops=most.flops) for phase in parts],
    }


def _phase(test: SpeedTest, length: int, *, seconds: float, peak_flops: float) -> dict[str, Any]:
    ceiling = loader_ceiling(test.plan, length, seconds=seconds * LOADING)
    speed = test.speed(length, seconds=seconds * (1 - LOADING))
    flops = flops_per_token(test, length)
    return {
        "length": length,
        "tokens_per_second": speed.tokens_per_second,
        "median_step_seconds": speed.median_seconds,
        "step_tokens": speed.step_tokens,
        "steps": speed.steps,
        "extrapolated": speed.extrapolated,
        "flops_per_token": flops,
        "share_of_peak": flops * speed.tokens_per_second / peak_flops,
        "memory": speed.memory,
        "loader_tokens_per_second": ceiling,
        "loader_share": speed.loader_share,
    }
