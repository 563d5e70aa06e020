"""The keywords of the public functions, for type checkers and editors: written by `make keywords`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

class FindDuplicatesKeywords(TypedDict, total=False):
    """Settings of osbert.find_duplicates and osbert.find_topics."""

    text: str
    pair: str
    delimiter: str
    header: Literal["auto", "yes", "no"]
    quotes: Literal["auto", "yes", "no"]
    encoding: str
    device: str
    trust: bool
    verify: bool

class TrainingRowsKeywords(TypedDict, total=False):
    """Settings of osbert.training_rows."""

    text: str
    pair: str
    delimiter: str
    header: Literal["auto", "yes", "no"]
    quotes: Literal["auto", "yes", "no"]
    encoding: str
    columns: Mapping[str, str]
    trust: bool
    verify: bool

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

class CompareEncodersKeywords(TypedDict, total=False):
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
    trust: bool
    verify: bool

class AnalyseKeywords(CompareEncodersKeywords, total=False):
    """Settings of osbert.analyse."""

    trees: int
    pairs: int
    executor: Literal["local", "slurm", "ray"] | None
    workers: int | None
    tasks: int
    partition: str
    time: str

class GenerateKeywords(WritingKeywords, FindDuplicatesKeywords, total=False):
    """Settings of osbert.generate."""

    executor: Literal["local", "slurm", "ray"] | None
    workers: int | None
    tasks: int
    partition: str
    time: str

class DistilKeywords(FindDuplicatesKeywords, total=False):
    """Settings of osbert.distil."""

    layers: int
    soft: float
    temperature: float
    states: float
    dev: Any
    length: int
    dimensions: int
    sif: float
    epochs: int
    few_shot: Literal["auto", "none", "linear", "linear-first", "contrastive"]
    batch: int
    micro_tokens: int
    seed: int
    dropout: float
    recurrent: int
    tuning: Literal["full", "none", "adapters", "lora"]
    rank: int
    merge: bool
    auxiliary: float
    frozen: int
    precision: Literal["auto", "fp32", "bf16"]
    deduplicate: bool
    log_every: int
    checkpoint_every: int
    track: str | Sequence[str]
    method: Literal["adamw", "muon"]
    learning_rate: float
    muon_rate: float
    muon_iterations: int
    beta1: float
    beta2: float
    epsilon: float
    bias_correction: bool
    weight_decay: float
    clip: float
    warmup: float
    schedule: Literal["linear", "cosine", "constant", "trapezoid"]
    decay: float
    evaluate_every: str
    patience: int
    keep: Literal["best", "last", "better"]
    data_map: bool
    columns: Mapping[str, str]
    label: str
    decimal: Literal["auto", "point", "comma"]
