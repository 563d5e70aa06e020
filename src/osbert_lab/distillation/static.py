"""Static vectors of an encoder: a vector for each piece, read once from the encoder, and the mean of a text's pieces.

After model2vec (Tulkens and van Dongen 2024): the vector that the encoder gives each piece by itself, its main
components (PCA), and a weight that is the lower the more frequent the piece is (SIF, Arora et al. 2017, section 3).
sentence-transformers (StaticEmbedding) and model2vec open the folder, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

import osbert
from osbert import components, recipe
from osbert.data.batch import micro_batches
from osbert.data.pack import Packer
from osbert.errors import UserError
from osbert.evaluation.forward import TOKENS, evaluating
from osbert.files import require_free, whole_folder, write_json
from osbert.guarded import read_object
from osbert.interop.files.weight_files import SAFE, write_tensors
from osbert.interop.folder import Folder, open_folder
from osbert.interop.opening import Opening
from osbert.interop.sentence_files import MODULES, STATIC, write_modules
from osbert.interop.sentence_parts import apply_parts
from osbert.lock import claim
from osbert.models.forms import pool_texts
from osbert.runs.contract import Notice, Run, Watch, ignore
from osbert.tasks import Record, Task, load, with_data
from osbert.text.file_tokenizer import AnyTokenizer, special_ids
from osbert.training.run_folder import FACTS, RunFolder
from osbert_lab.distillation.settings import StaticVectorSettings
from osbert_lab.distillation.unlabelled import read_unlabelled
from osbert_lab.static_vectors.word_vectors import write_static

Floats = NDArray[np.float32]
UNUSED = re.compile(r"\[unused\d+\]")
"""Pieces of BERT's vocabulary that stand for nothing."""
TIMED = 1000
"""Most texts by which the speed is measured."""


@dataclass(frozen=True)
class StaticStudent(Run):
    """A folder of static vectors. `metrics`, `teacher`: the scores of both on the same pairs; {} without pairs."""

    reported: ClassVar[tuple[str, ...]] = ("folder", "metrics", "teacher")

    metrics: Mapping[str, float]
    teacher: Mapping[str, float]


def distil_static(
    teacher: Path,
    out: Path,
    *,
    data: Any = None,
    texts: Any = None,
    settings: StaticVectorSettings,
    opening: Opening,
    watch: Watch = ignore,
) -> StaticStudent:
    """Write static vectors of the encoder in the folder `teacher` into the folder `out`.

    `data`: pairs of texts with a number, on which both are scored. `texts`: rows without labels, whose pieces are
    counted for the weights; without them the rank in the vocabulary stands for the frequency (Zipf).
    """
    with claim(out) as claimed:
        require_free(claimed)
        pairs = [] if data is None else _read_pairs(data)
        folder = open_folder(teacher, opening)
        tokenizer = folder.tokenizer
        counts = None if texts is None else _count_pieces(_read_texts(texts, watch), tokenizer)
        vectors = main_components(piece_vectors(folder), settings.dimensions)
        vectors *= piece_weights(tokenizer, counts, settings.sif)[:, None]
        config = {"normalize": True, "hidden_dim": vectors.shape[1], "apply_pca": True, "sif_coefficient": settings.sif}
        with whole_folder(claimed) as path:
            write_static(path, tokenizer, torch.from_numpy(vectors))
            write_tensors({STATIC: torch.from_numpy(vectors)}, path / SAFE)  # by the name that others read
            write_json(path / "config.json", {**read_object(path / "config.json"), **config})
            write_modules(path / MODULES, ["StaticEmbedding", "Normalize"], [".", "1_Normalize"])
            facts = {"osbert": osbert.__version__, "command": "distil", "teacher": str(teacher), "to": "static"}
            write_json(path / FACTS, {**facts, "settings": {"static": recipe.as_table(settings)}})
            RunFolder(path).finish({})
    watch(Notice(f"static vectors of {len(vectors):,} pieces, {vectors.shape[1]} numbers each, are in {out}"))
    scores = []
    for name, model in (("teacher", teacher), ("student", out)) if pairs else ():
        scores.append(score_pairs(model, pairs))
        watch(Notice(f"{name}: spearman {scores[-1]['spearman']:.4f}, {scores[-1]['texts_per_second']:,.0f} texts/s"))
    teacher_scores, student_scores = scores or ({}, {})
    return StaticStudent(out, metrics=student_scores, teacher=teacher_scores)


def piece_vectors(folder: Folder) -> Floats:
    """Return the vector (V, D) that the encoder in a folder gives each piece between its special pieces.

    Raises UserError for an encoder that gives a text other than one dense vector.
    """
    tokenizer, backbone, sentences = folder.tokenizer, folder.backbone, folder.sentences
    if sentences and sentences.kind != "dense":
        raise UserError(
            f"{folder} gives {sentences.kind} vectors; static vectors are made of one dense vector for each piece. "
            "Distil an encoder with such vectors.",
            code="unsupported-model",
        )
    packer = Packer(tokenizer=tokenizer, length=min(16, backbone.architecture.length))
    word = np.ones(1, bool)
    examples = [packer.single(np.array([piece]), word, record=piece) for piece in range(len(tokenizer))]
    vectors = np.zeros((len(tokenizer), 0), np.float32)
    pooling = sentences.pooling if sentences else "mean"
    with evaluating(backbone) as device:
        for batch in micro_batches(examples, TOKENS):
            moved = batch.to(device)
            hidden = backbone(moved).hidden
            pooled = torch.stack(pool_texts(hidden, moved, pooling, backbone.summaries(moved))).float().cpu().numpy()
            pooled = apply_parts(sentences.parts if sentences else (), pooled)
            vectors = vectors if vectors.shape[1] else np.zeros((len(tokenizer), pooled.shape[1]), np.float32)
            vectors[batch.records.numpy()] = pooled
    return vectors


def main_components(vectors: Floats, dimensions: int) -> Floats:
    """Return the coordinates (V, `dimensions`) of vectors (V, D) along their main axes, from their mean.

    >>> main_components(np.array([[1, 0, 3], [-1, 0, 3]], np.float32), 2).round(6).tolist() in (
    ...     [[1, 0], [-1, 0]], [[-1, 0], [1, 0]])
    True
    """
    centered = vectors - vectors.mean(axis=0)
    _, axes = np.linalg.eigh(centered.T.astype(np.float64) @ centered)  # in ascending order of variance
    return np.asarray(centered @ axes[:, ::-1][:, :dimensions].astype(np.float32))


def piece_weights(tokenizer: AnyTokenizer, counts: NDArray[np.int64] | None, sif: float) -> Floats:
    """Return the weight a / (a + p) (V,) of each piece of frequency p; 0 for special and unused pieces.

    Without `counts` the piece of rank r has a frequency proportional to 1 / r. `sif`: a; 0 for equal weights.
    """
    words = np.array([not UNUSED.fullmatch(piece) for piece in tokenizer.vocabulary])
    words[list(special_ids(tokenizer))] = False
    frequencies = words / np.maximum(np.cumsum(words), 1) if counts is None else words * (counts + 1.0)
    frequencies /= max(frequencies.sum(), 1e-12)
    return np.asarray(words * (sif / (sif + frequencies) if sif else 1.0), np.float32)


def score_pairs(model: Path, pairs: Sequence[Record]) -> dict[str, float]:
    """Return Spearman's correlation of a model's cosines with the numbers of pairs, and texts per second."""
    from scipy.stats import spearmanr

    engine = osbert.load(model)
    sides = [engine.embed([record.texts[side] for record in pairs], normalize=True) for side in (0, 1)]
    cosines = np.einsum("nd,nd->n", *map(np.asarray, sides))
    texts = [record.texts[0] for record in pairs][:TIMED]
    begun = time.perf_counter()
    engine.embed(texts)
    speed = len(texts) / (time.perf_counter() - begun)
    return {"spearman": float(spearmanr(cosines, [record.label for record in pairs])[0]), "texts_per_second": speed}


def _read_pairs(data: Any) -> list[Record]:
    """Return the pairs of a file, or the development rows of a folder. Raises UserError for single texts."""
    kind = components.find("tasks", "regress", base=Task)
    task = with_data(kind(), data)
    task = task.source.resolve()
    split = "all" if task.source.alone is not None else "dev"
    _, records = load(task, (split,), fit=False)
    if single := [record for record in records[split] if len(record.texts) != 2]:
        raise UserError(
            f"{single[0].place}: it is no pair of texts with a number, on which vectors are scored. Give --data such "
            "pairs, as of STS-B, or leave it out.",
            code="wrong-number-of-texts",
        )
    return records[split]


def _read_texts(texts: Any, watch: Watch) -> list[str]:
    task = components.find("tasks", "classify", base=Task)()
    return [text for record in read_unlabelled(task, texts, watch) for text in record.texts]


def _count_pieces(texts: Sequence[str], tokenizer: AnyTokenizer) -> NDArray[np.int64]:
    counts = np.zeros(len(tokenizer), np.int64)
    for text in texts:
        np.add.at(counts, tokenizer.encode(text), 1)
    return counts
