"""The keywords of the public functions, for type checkers and editors: written by `make keywords`."""

from typing import Literal, TypedDict

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

class GenerateKeywords(WritingKeywords, total=False):
    """Settings of osbert.generate."""

    executor: Literal["local", "slurm", "ray"] | None
    workers: int | None
    tasks: int
    partition: str
    time: str
    text: str
    pair: str
    delimiter: str
    header: Literal["auto", "yes", "no"]
    quotes: Literal["auto", "yes", "no"]
    encoding: str
    device: str
    trust: bool
    verify: bool
