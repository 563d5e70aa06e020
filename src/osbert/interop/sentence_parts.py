"""The parts of a sentence model between its pooling and its normalisation: Dense, LayerNorm and Normalize.

Models of many vectors a text (ColBERT) have them without a pooling, and a mask of the tokens that count.

sentence-transformers stores each in a folder of its own: a config, and weights where it has some.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.files import write_json
from osbert.guarded import read_if_there, read_object
from osbert.interop.files.weight_files import SAFE, read_tensors, write_tensors

Vectors = NDArray[np.float32]
VECTOR = "sentence_embedding"
"""Their name of the vector of a text, which a part reads and writes."""
TOKENS = "token_embeddings"
"""Their name of the vectors of its tokens, which the parts of a model of many vectors read and write."""
IO = ("module_input_name", "module_output_name")
"""Their names of what a part reads and writes."""
EPSILON = 1e-5
"""What LayerNorm adds to the variance."""


def _gelu(values: Vectors) -> Vectors:
    from scipy.special import erf

    return np.asarray(values * (1 + erf(values / 2**0.5)) / 2, np.float32)


IDENTITY = "torch.nn.modules.linear.Identity"
"""Their name of no activation."""
ACTIVATIONS: Mapping[str, Callable[[Vectors], Vectors]] = {
    IDENTITY: lambda values: values,
    "torch.nn.modules.activation.Tanh": np.tanh,
    "torch.nn.modules.activation.ReLU": lambda values: np.maximum(values, 0),
    "torch.nn.modules.activation.Sigmoid": lambda values: np.asarray(1 / (1 + np.exp(-values)), np.float32),
    "torch.nn.modules.activation.SiLU": lambda values: values / (1 + np.exp(-values)),
    "torch.nn.modules.activation.GELU": _gelu,
}


class VectorPart(ABC):
    """A function from vectors (n, D) to vectors (n, E). `weights`: its arrays, by their names in the file."""

    kind: ClassVar[str]
    weights: Mapping[str, Vectors]

    def __eq__(self, other: object) -> bool:
        """Compare kind, settings and weights."""
        return isinstance(other, VectorPart) and hash_parts([self]) == hash_parts([other])

    def __hash__(self) -> int:
        return hash(hash_parts([self]))

    @abstractmethod
    def apply(self, vectors: Vectors) -> Vectors:
        """Return the vectors (n, E) of vectors (n, D)."""

    def width(self, before: int) -> int:
        """Return E for vectors of width D = `before`. Raises ValueError if the part reads another width."""
        return before

    def config(self) -> dict[str, Any]:
        """Return the settings, as sentence-transformers writes them."""
        return {}

    def write(self, folder: Path, *, vector: str = VECTOR) -> None:
        """Write the part as sentence-transformers reads it; `vector`: its name of what the part reads and writes."""
        folder.mkdir(parents=True, exist_ok=True)
        names = dict.fromkeys(IO, vector) if vector != VECTOR and self.kind != TokenMask.kind else {}
        if settings := self.config() | names:
            write_json(folder / "config.json", settings)
        if self.weights:
            write_tensors({name: torch.from_numpy(array) for name, array in self.weights.items()}, folder / SAFE)


@dataclass(frozen=True, eq=False)
class Dense(VectorPart):
    """activation(W v + b), with b and the residual connection where the file has them."""

    kind: ClassVar[str] = "Dense"
    weights: Mapping[str, Vectors]
    activation: str
    residual: bool = False

    @classmethod
    def linear(cls, matrix: Vectors) -> Self:
        """Return W v for a matrix W (E, D)."""
        return cls({"linear.weight": matrix}, IDENTITY)

    @property
    def is_linear(self) -> bool:
        """Whether it is W v alone."""
        return self.weights.keys() == {"linear.weight"} and self.activation == IDENTITY and not self.residual

    def apply(self, vectors: Vectors) -> Vectors:
        projected = vectors @ self.weights["linear.weight"].T
        if "linear.bias" in self.weights:
            projected = projected + self.weights["linear.bias"]
        projected = ACTIVATIONS[self.activation](projected)
        if self.residual:
            matrix = self.weights.get("residual.weight")
            projected = projected + (vectors if matrix is None else vectors @ matrix.T)
        return projected

    def width(self, before: int) -> int:
        outputs, inputs = self.weights["linear.weight"].shape
        if inputs != before:
            raise ValueError(f"a Dense part reads vectors of {inputs:,} numbers, but gets {before:,}")
        return outputs

    def config(self) -> dict[str, Any]:
        outputs, inputs = self.weights["linear.weight"].shape
        sizes = {"in_features": inputs, "out_features": outputs, "bias": "linear.bias" in self.weights}
        return {**sizes, "activation_function": self.activation, **({"use_residual": True} if self.residual else {})}


@dataclass(frozen=True, eq=False)
class LayerNorm(VectorPart):
    """(v - mean) / deviation, times a weight plus a bias (Ba et al. 2016)."""

    kind: ClassVar[str] = "LayerNorm"
    weights: Mapping[str, Vectors]

    def apply(self, vectors: Vectors) -> Vectors:
        centered = vectors - vectors.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + EPSILON)
        return np.asarray(centered / deviation * self.weights["norm.weight"] + self.weights["norm.bias"], np.float32)

    def width(self, before: int) -> int:
        if (inputs := len(self.weights["norm.weight"])) != before:
            raise ValueError(f"a LayerNorm part reads vectors of {inputs:,} numbers, but gets {before:,}")
        return before

    def config(self) -> dict[str, Any]:
        return {"dimension": len(self.weights["norm.weight"])}


class Normalize(VectorPart):
    """The vector at length 1, before another part reads it; `SentenceModel.normalize` has the last one."""

    kind: ClassVar[str] = "Normalize"
    weights: Mapping[str, Vectors] = MappingProxyType({})

    def apply(self, vectors: Vectors) -> Vectors:
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)


@dataclass(frozen=True, eq=False)
class TokenMask(VectorPart):
    """Which tokens of a text have vectors: none of the pieces `skipped`, in texts of the roles `roles`."""

    kind: ClassVar[str] = "MultiVectorMask"
    weights: Mapping[str, Vectors] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    roles: tuple[str, ...] = ("document",)

    def apply(self, vectors: Vectors) -> Vectors:
        """Return the vectors (n, D) as they are; who knows their tokens leaves out those that are skipped."""
        return vectors

    def config(self) -> dict[str, Any]:
        return {"skiplist_words": [*self.skipped], "skiplist_tasks": [*self.roles], "keep_only_token_ids": None}


def read_part(kind: str, folder: Path, *, vector: str = VECTOR) -> VectorPart | None:
    """Return a part by its kind and folder; None for Dropout, which does nothing outside of training.

    `vector`: what the part must read and write, VECTOR or TOKENS. Raises UserError for another kind, an activation or
    an input that osbert lacks, and for damaged weights.
    """
    if kind == TokenMask.kind and vector == TOKENS:
        return _read_mask(folder / "config.json")
    if kind not in ("Dense", "LayerNorm", "Normalize", "Dropout"):
        raise UserError(
            f"{folder.parent} has a part {kind}, which osbert does not support, so its vectors would not be the "
            "model's. Parts that it supports: Transformer, Pooling, Dense, LayerNorm, Normalize, Dropout. To use the "
            "encoder alone, give a pooling.",
            code="unsupported-model",
        )
    path = folder / "config.json"
    settings = read_object(path) if kind in ("Dense", "LayerNorm") else read_if_there(path)
    for name in IO:
        if settings.get(name) not in (None, vector):
            raise UserError(
                f"{path}: {name} is {settings[name]!r:.80}; osbert supports {kind} on {vector} only.",
                code="unsupported-model",
            )
    if kind == "Dropout":
        return None
    if kind == "Normalize":
        return Normalize()
    weights = {name: tensor.float().numpy() for name, tensor in read_tensors(folder).items()}
    if kind == "LayerNorm":
        _require_shapes(folder, weights, {"norm.weight": ("D",), "norm.bias": ("D",)})
        return LayerNorm(weights)
    activation = settings.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        names = ", ".join(name.rpartition(".")[2] for name in ACTIVATIONS)
        raise UserError(
            f"{path}: the activation_function {activation!r:.80} is not supported; these of torch are: {names}.",
            code="unsupported-model",
        )
    shapes: dict[str, tuple[str, ...]] = {"linear.weight": ("E", "D")}
    residual = settings.get("use_residual") is True
    if settings.get("bias", True):
        shapes["linear.bias"] = ("E",)
    if residual and settings.get("in_features") != settings.get("out_features"):
        shapes["residual.weight"] = ("E", "D")
    sizes = {"E": settings.get("out_features"), "D": settings.get("in_features")}
    _require_shapes(folder, weights, shapes, {name: size for name, size in sizes.items() if size is not None})
    return Dense(weights, activation, residual)


def _read_mask(path: Path) -> TokenMask:
    """Return the mask in a file. Raises UserError if it is damaged, or keeps tokens by their ids (of images)."""
    settings = read_object(path)
    if settings.get("keep_only_token_ids"):
        raise UserError(
            f"{path}: keep_only_token_ids is for tokens of images, which osbert does not read.",
            code="unsupported-model",
        )
    words, roles = settings.get("skiplist_words") or [], settings.get("skiplist_tasks", ["document"])
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in (words, roles)):
        raise UserError(f"{path}: skiplist_words and skiplist_tasks must be lists of texts.", code="wrong-format")
    return TokenMask(skipped=tuple(words), roles=tuple(roles))


def apply_parts(parts: Sequence[VectorPart], vectors: Vectors) -> Vectors:
    """Return the vectors (n, E) after all parts."""
    for part in parts:
        vectors = part.apply(vectors)
    return vectors


def hash_parts(parts: Sequence[VectorPart]) -> str:
    """Return a hash of parts and their weights; "" for none."""
    if not parts:
        return ""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{part.kind} {sorted(part.config().items())}".encode())
        for name, array in sorted(part.weights.items()):
            digest.update(f"{name} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _require_shapes(
    folder: Path,
    weights: Mapping[str, Vectors],
    shapes: Mapping[str, tuple[str, ...]],
    sizes: Mapping[str, int] | None = None,
) -> None:
    """Raise UserError unless the weights are those of `shapes`, whose letters stand for equal sizes."""
    size_of_letter = dict(sizes or {})
    fits = weights.keys() == shapes.keys() and all(
        len(shapes[name]) == array.ndim
        and all(size_of_letter.setdefault(letter, size) == size for letter, size in zip(shapes[name], array.shape))
        for name, array in weights.items()
    )
    if not fits:
        stored = ", ".join(f"{name} {array.shape}" for name, array in sorted(weights.items()))
        expected = ", ".join(f"{name} ({', '.join(shape)})" for name, shape in shapes.items())
        raise UserError(
            f"{folder}: its weights do not fit its config.json: {stored} instead of {expected}. Copy it again.",
            code="damaged-file",
        )
