"""The keywords of the public functions, for type checkers and editors: written by `make keywords`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from osbert.keywords import (
    EvaluateKeywords,
    OpeningKeywords,
    OptimizerKeywords,
    PretrainKeywords,
    TaskKeywords,
    TextKeywords,
    TrainingKeywords,
    VectorKeywords,
)

class FindDuplicatesKeywords(TextKeywords, OpeningKeywords, total=False):
    """Settings of osbert.find_duplicates and osbert.find_topics."""

    device: str

class TrainingRowsKeywords(TextKeywords, OpeningKeywords, total=False):
    """Settings of osbert.training_rows."""

    columns: Mapping[str, str]

class WritingKeywords(TypedDict, total=False):
    """Settings of Engine.generate and Engine.stream."""

    most: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int
    precision: Literal["fp32", "bf16"]
    least: int | None
    beams: int | None
    length_penalty: float | None
    no_repeat: int | None

class CompareEncodersKeywords(OpeningKeywords, total=False):
    """Settings of osbert.compare_encoders."""

    texts: int
    length: int
    shortest: int
    seed: int
    only: str
    device: str
    documents: Literal["file", "blank-line", "line"]
    field: str
    encoding: str
    errors: Literal["strict", "replace"]

class AnalyseKeywords(CompareEncodersKeywords, TaskKeywords, total=False):
    """Settings of osbert.analyse."""

    trees: int
    pairs: int

class MineKeywords(VectorKeywords, OpeningKeywords, total=False):
    """Settings of osbert.mine."""

    layers: str
    bm25: bool
    allow_unknown: bool
    encoding: str
    tokens: int
    device: str
    negatives: int
    first_rank: int
    last_rank: int
    margin: float
    above: float
    review: str
    scores: str

class GenerateKeywords(WritingKeywords, FindDuplicatesKeywords, TaskKeywords, total=False):
    """Settings of osbert.generate."""

class DistilKeywords(TrainingKeywords, OptimizerKeywords, EvaluateKeywords, total=False):
    """Settings of osbert.distil."""

    layers: int
    soft: float
    temperature: float
    states: float
    dev: Any
    length: int
    dimensions: int
    sif: float
    evaluate_every: str
    patience: int
    keep: Literal["best", "last", "better"]
    data_map: bool

class AdaptKeywords(PretrainKeywords, total=False):
    """Settings of osbert.adapt."""

    text: str
    general: str | Path | None
    extend: int
    encoding: str
