"""Family: what a published family of encoders calls BERT's config fields, tensors and classes, and what it refuses.

Each is BERT with other values of the Architecture and other names. So tensors get BERT's names as they are read, and
theirs again as they are written; everything between knows BERT's names alone. A family is one file in families/, which
holds one `FAMILY`.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeGuard

import torch
from torch import Tensor

from osbert import components
from osbert.models.architecture import Architecture
from osbert.models.contract import Sizes
from osbert.models.forms import Form

Names = tuple[tuple[str, str], ...]
"""Theirs -> BERT's, as parts of tensors' names, # for a number; written back in the same order."""

Problem = Callable[[str], None]
"""Takes a sentence on a config field that cannot be honoured."""

FOLDER = "interop.huggingface.families"

CLASSES: Mapping[Form, str] = {
    "tokens": "ForTokenClassification",
    "sequence": "ForSequenceClassification",
    "choice": "ForMultipleChoice",
    "span": "ForQuestionAnswering",
    "mlm": "ForMaskedLM",
}
"""The form of a head -> how their class for it ends, in the order in which one of several heads names the class."""

CLASSIFIER: Mapping[Form, Names] = {
    "sequence": (("classifier.out_proj.", "classifier."), ("classifier.dense.", "pooler.dense.")),
}
"""A classifier of texts that has the pooler within it, as RoBERTa's."""

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Their names of activations -> ours; the first of several names for one curve is the one written."""

FREE = (
    *("layers", "heads", "width", "feedforward", "vocabulary", "length"),
    *("dropout", "attention_dropout", "epsilon", "deviation", "neighbours", "scaled_outputs"),
)
"""The settings of the Architecture that every family leaves open."""


def _nothing_read(config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    return {}


def _berts_axes(name: str, width: int) -> None:
    return None


def _nothing_written(architecture: Architecture) -> dict[str, Any]:
    return {}


def activation_name(activation: str) -> str:
    """Return their name of an activation."""
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation)


@dataclass(frozen=True, kw_only=True)
class Family:
    """How a family differs from BERT.

    `types`: their model types; the first is written. `name`: how their classes begin. `backbone`: the prefix of the
    backbone's tensors, "" for the model type; `bare`: whether they have none. `sizes`: the class of the settings.

    The mathematics: `values`, settings of the Architecture that all its models have; `varies`, those that differ among
    them, beside `FREE`; `fits`, what else must be true of them. All other settings are the Architecture's defaults.

    The config: `fields`, BERT's field -> theirs; `without`, BERT's fields that it has not; `only`, fields with the one
    value that leaves the mathematics as ours is, which is also theirs where the field is absent; `defaults`, values of
    fields that may be absent or null; `read`, further settings from the config; `written`, further fields for an
    Architecture.

    The tensors: `tensors`, names; `heads`, those that hold where there is a head of a form; `fused`, parts of names of
    tensors that hold the rows of several of BERT's; `transposed`, of matrices with a column for each row of BERT's;
    `axes`, the sizes of the last two axes of a tensor by its name and the head width, where these are one axis of
    BERT's, one size -1 for what is left;
    `halves`, whether rotary positions turn number i of a head with number i + K/2, not with its neighbour; `rooted`,
    parts of BERT's names of what is multiplied by the root of the head width when it is read, where scores are not
    divided by it; `aliases`, names that are read where no tensor has the usual one, and never written; `tables`,
    further tensors that hold nothing learned, for an Architecture, by BERT's names; `buffers`, how the names of such
    tensors end, to pass over.

    The classes: `classes`, by the form of a head, none where theirs is another; `pretraining`, the class of a model
    with heads for masked pieces and for next sentences or their order; `causal`, that of one that predicts from left to
    right.
    """

    types: tuple[str, ...]
    name: str
    sizes: type[Architecture] = Architecture
    backbone: str = ""
    bare: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    varies: tuple[str, ...] = ("activation", "segments")
    fits: Callable[[Architecture], bool] = lambda sizes: sizes.segments > 0
    fields: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    only: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Mapping[str, Any], Problem], dict[str, Any]] = _nothing_read
    written: Callable[[Architecture], dict[str, Any]] = _nothing_written
    tensors: Names = ()
    heads: Mapping[Form, Names] = field(default_factory=dict)
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    transposed: tuple[str, ...] = ()
    axes: Callable[[str, int], tuple[int, int] | None] = _berts_axes
    halves: bool = False
    rooted: tuple[str, ...] = ()
    aliases: Names = ()
    tables: Callable[[Architecture], dict[str, Tensor]] = _nothing_written
    buffers: tuple[str, ...] = ()
    classes: Mapping[Form, str] = field(default_factory=lambda: CLASSES)
    pretraining: str = ""
    causal: str = ""

    @property
    def prefix(self) -> str:
        """Return the prefix of the backbone's tensors."""
        return self.backbone or self.types[0]

    def has(self, architecture: Architecture) -> bool:
        """Return whether its models have this mathematics."""
        if type(architecture) is not self.sizes:
            return False
        shaping = (one for one in fields(architecture) if one.name not in (*FREE, *self.varies))
        same = all(getattr(architecture, one.name) == self.values.get(one.name, one.default) for one in shaping)
        return same and self.fits(architecture)

    def in_bert_fields(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a config.json of the family with BERT's names of the fields that both have."""
        absent = {name: value for name, value in self.defaults.items() if config.get(name) is None}
        config = {**config, **absent}
        known = {name: config[theirs] for name, theirs in self.fields.items() if theirs in config}
        return {name: value for name, value in config.items() if name not in self.without} | known

    def settings(self, config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
        """Return the settings that a config.json (by their names) gives beyond BERT's; what cannot be: to `problem`."""
        found = dict(self.values) | self.read(config, problem)
        for name, only in self.only.items():
            if config.get(name, only) != only:
                problem(
                    f"{name} is {config[name]!r}, which is not supported in {self.types[0]} models; only {only!r} is."
                )
        return found

    def own_fields(self, known: Mapping[str, Any], architecture: Architecture) -> Iterator[tuple[str, Any]]:
        """Yield the fields of its config.json for BERT's `known`: renamed, and with those that BERT has not."""
        for name, value in known.items():
            if name not in self.without:
                yield self.fields.get(name, name), value
        yield "model_type", self.types[0]
        yield from self.written(architecture).items()

    def canonical(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return a model's tensors by BERT's names, without the prefix of their own; as they are if it has no others.

        Where two would have one name (a classifier that has a pooler within, beside a pooler), the classifier's gets
        it; the other keeps its own.
        """
        if not self.tensors:
            return dict(tensors)
        parts = dict(self._parted(tensors))
        rules = self._read_rules(tensors, config)
        names = {theirs: self._bert_name(theirs, rules) for theirs in parts}
        heads = {ours for theirs, ours in names.items() if not theirs.startswith(f"{self.prefix}.")}
        found = {
            theirs if theirs.startswith(f"{self.prefix}.") and ours in heads else ours: parts[theirs]
            for theirs, ours in names.items()
        }
        if not self.halves and not self.rooted:
            return found
        fields = self.in_bert_fields(config)
        width, count = (fields.get(name) for name in ("hidden_size", "num_attention_heads"))
        if not isinstance(width, int) or not isinstance(count, int) or count < 1:
            return found
        wide = fields.get("d_kv") or width // count
        found = {name: tensor * math.sqrt(wide) if self._rooted(name) else tensor for name, tensor in found.items()}
        if not self.halves:
            return found
        return {name: _paired(tensor, width // count) if _turned(name) else tensor for name, tensor in found.items()}

    def published(
        self, tensors: Mapping[str, Tensor], forms: Container[str], *, prefix: bool, width: int
    ) -> dict[str, Tensor]:
        """Return their tensors for those that have BERT's names, whose attention heads are `width` wide.

        That undoes `canonical`. `forms`: those of the heads published with it. `prefix`: whether the backbone's get the
        family's prefix.
        """
        places = {part: place for parts in self.fused.values() for place, part in enumerate(parts)}
        parts: dict[str, dict[int, Tensor]] = {}
        for name, tensor in tensors.items():
            part = _halved(tensor, width) if self.halves and _turned(name) else tensor
            part = part / math.sqrt(width) if self._rooted(name) else part
            place = next((place for own, place in places.items() if own in name), 0)
            parts.setdefault(self.spelled(name, forms, prefix=prefix), {})[place] = part
        whole = {name: torch.cat([rows[place] for place in sorted(rows)]) for name, rows in parts.items()}
        return {name: self._folded(name, self._turned_over(name, part), width) for name, part in whole.items()}

    def spelled(self, name: str, forms: Container[str] = (), *, prefix: bool = False) -> str:
        """Return their name of a tensor that has BERT's; `forms`: those of the heads published with it.

        `prefix`: whether what belongs to the backbone gets the family's prefix.
        """
        if name.startswith("heads."):
            return name
        inside = not name.startswith(("cls.", "classifier.", "qa_outputs.", "discriminator_predictions."))
        fused = tuple((theirs, part) for theirs, parts in self.fused.items() for part in parts)
        heads = tuple(rule for form, rules in self.heads.items() if form in forms for rule in rules)
        for number, (theirs, ours) in enumerate((*fused, *self.tensors, *heads)):
            if (renamed := _renamed(name, ours, theirs)) != name:
                of_head = number >= len(fused) + len(self.tensors)
                inside = inside and (not ours.startswith("pooler.") or (theirs.startswith("pooler.") and not of_head))
                name = renamed
        return f"{self.prefix}.{name}" if prefix and inside and not self.bare else name

    def class_name(self, forms: Container[str], *, causal: bool = False) -> str:
        """Return the name of the class that holds a backbone with heads of these forms."""
        if causal and "mlm" in forms:
            return self.name + self.causal
        if self.pretraining and "mlm" in forms and ("nsp" in forms or "order" in forms):
            return self.name + self.pretraining
        return self.name + next((end for form, end in self.classes.items() if form in forms), "Model")

    def _parted(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors, each that holds several of BERT's as these."""
        for name, stored in tensors.items():
            if stored.ndim > 1 and not name.startswith("heads.") and self.axes(name, 1):
                stored = stored.flatten(-2)
            tensor = self._turned_over(name, stored)
            theirs = next((part for part in self.fused if part in name and not name.startswith("heads.")), None)
            if theirs is None:
                yield name, tensor
                continue
            parts = self.fused[theirs]
            for part, rows in zip(parts, tensor.tensor_split(len(parts)), strict=True):
                yield name.replace(theirs, part), rows

    def _turned_over(self, name: str, tensor: Tensor) -> Tensor:
        """Return a tensor that has their name, transposed if it is a matrix of the other orientation than BERT's."""
        if tensor.ndim != 2 or name.startswith("heads.") or not any(part in name for part in self.transposed):
            return tensor
        return tensor.T.contiguous()

    def _folded(self, name: str, tensor: Tensor, width: int) -> Tensor:
        """Return a tensor that has their name, with the two axes that it has in place of BERT's one."""
        axes = None if name.startswith("heads.") else self.axes(name, width)
        return tensor if axes is None else tensor.unflatten(-1, axes)

    def _read_rules(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Names:
        """Return the names that hold in a file: its head's where the config's class or the tensors tell which it is."""
        classes = [str(name) for name in config.get("architectures") or () if isinstance(name, str)]
        told = (form for form, end in CLASSES.items() if any(name.endswith(end) for name in classes))
        there = (form for form, rules in self.heads.items() if all(_any_in(tensors, theirs) for theirs, _ in rules))
        form = next((form for form in (*told, *there) if form in self.heads), None)
        rules = self.heads.values() if form is None else (self.heads[form],)
        aliases = (rule for rule in self.aliases if not _any_in(tensors, rule[1]))
        return (*aliases, *self.tensors, *(rule for one in rules for rule in one))

    def _bert_name(self, name: str, rules: Names) -> str:
        if name.startswith("heads."):
            return name
        bare = name.removeprefix(f"{self.prefix}.")
        for theirs, ours in rules:
            bare = _renamed(bare, theirs, ours)
        return bare

    def _rooted(self, name: str) -> bool:
        """Return whether a tensor by BERT's name is multiplied by the root of the head width when it is read."""
        return any(part in name for part in self.rooted)


def _any_in(names: Iterable[str], part: str) -> bool:
    return any(part in name for name in names)


def _renamed(name: str, part: str, other: str) -> str:
    """Return a name with one of its parts replaced.

    >>> _renamed("h.3.mlp.weight", "h.#.mlp.", "layer.#.up.")
    'layer.3.up.weight'
    """
    if "#" not in part:
        return name.replace(part, other)
    return re.sub(re.escape(part).replace(r"\#", r"(\d+)"), other.replace("#", r"\1"), name)


def rotary_base(table: object, default: Any, field: str, problem: Problem) -> float:
    """Return the base of rotary angles by a table of rope_parameters; `default` if it has none, `field` names it."""
    plain = isinstance(table, dict) and table.get("rope_type", "default") == "default"
    if not plain or not table.keys() <= {"rope_type", "rope_theta"}:  # type: ignore[attr-defined]
        problem(f"rope_parameters ({field}) are {table!r}; only rope_theta with the rope_type default goes.")
        return 1.0
    value = table.get("rope_theta", default)  # type: ignore[attr-defined]
    if not isinstance(value, int | float) or isinstance(value, bool):
        problem(f"{field} must be a number, but is {value!r}.")
        return 1.0
    return float(value)


def _turned(name: str) -> bool:
    """Return whether a tensor by BERT's name makes what rotary positions turn: queries and keys."""
    return ".attention.self.query." in name or ".attention.self.key." in name


def _paired(rows: Tensor, width: int) -> Tensor:
    """Return `rows` (H K, ...) with the halves of each head, K = `width`, made pairs; as they are if K does not fit."""
    if width < 2 or width % 2 or rows.shape[0] % width:
        return rows
    return rows.unflatten(0, (-1, 2, width // 2)).transpose(1, 2).flatten(0, 2)  # (H, 2, K/2, ...) -> (H K, ...)


def _halved(rows: Tensor, width: int) -> Tensor:
    """Return `rows` (H K, ...) with the pairs of each head, K = `width`, made halves: what `_paired` undoes."""
    return rows.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2)


@cache
def every_family() -> tuple[Family, ...]:
    """Return all families, in the order of their files' names."""
    found = [importlib.import_module(f"osbert.{FOLDER}.{name}").FAMILY for name in components.names(FOLDER)]
    return tuple(found)


def of_type(model_type: object) -> Family | None:
    """Return the family of a model type, as a config.json has it; None where it is none."""
    return next((family for family in every_family() if model_type in family.types), None)


def of_architecture(architecture: Sizes) -> Family | None:
    """Return the family whose models have this mathematics; None where none has."""
    if not isinstance(architecture, Architecture):
        return None
    return next((family for family in every_family() if family.has(architecture)), None)


def has_berts_names(sizes: Sizes) -> TypeGuard[Architecture]:
    """Return whether settings and tensors go by BERT's names: a Transformer's, or those of a family here."""
    return type(sizes) is Architecture or of_architecture(sizes) is not None
