"""The keywords of the public functions, for type checkers and editors: written by `make keywords`."""

from typing import Literal, TypedDict

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
