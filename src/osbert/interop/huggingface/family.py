"""Family: how a published family of encoders differs from BERT in config fields, tensors and classes.

Each family is BERT with other values of the Architecture and other names. Tensors get BERT's names when they are read
and the family's when they are written; all other code uses BERT's names only. A family is one file in families/ with
one `FAMILY`.
"""

from __future__ import annotations

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
"""Pairs of (their part of a tensor's name, BERT's part), # for a number; applied in this order in both directions."""

Problem = Callable[[str], None]
"""Receives a sentence about a config field that is not supported."""

FOLDER = "interop.huggingface.families"

CLASSES: Mapping[Form, str] = {
    "tokens": "ForTokenClassification",
    "sequence": "ForSequenceClassification",
    "choice": "ForMultipleChoice",
    "span": "ForQuestionAnswering",
    "mlm": "ForMaskedLM",
}
"""The form of a head -> the suffix of their class. The first form in this order that is present names the class."""

CLASSIFIER: Mapping[Form, Names] = {
    "sequence": (("classifier.out_proj.", "classifier."), ("classifier.dense.", "pooler.dense.")),
}
"""A classifier of texts that contains the pooler, as RoBERTa's."""

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
"""Their names of activations -> ours. If several names mean one function, the first is written."""

FREE = (
    *("layers", "heads", "width", "feedforward", "vocabulary", "length"),
    *("dropout", "attention_dropout", "epsilon", "deviation", "neighbours", "scaled_outputs"),
)
"""The settings of the Architecture that may have any value in every family."""


def activation_name(activation: str) -> str:
    """Return their name of an activation."""
    return next(name for name, function in ACTIVATIONS.items() if function == activation)


@dataclass(frozen=True, kw_only=True)
class Family:
    """How a family differs from BERT.

    `types`: their model types; the first is written. `name`: how their classes begin. `backbone`: the prefix of the
    backbone's tensors, "" for the model type; `bare`: whether they have none. `sizes`: the class of the settings.

    The mathematics: `values`, settings of the Architecture that are the same in all its models; `varies`, settings that
    differ among them, beside `FREE`; `fits`, further conditions. All other settings have the Architecture's defaults.

    The config: `fields`, BERT's field -> theirs; `without`, BERT's fields that the family does not have; `only`, fields
    with the one supported value, which an absent field also means; `defaults`, values of fields that may be absent or
    null; `read`, further settings from the config; `written`, further fields for an Architecture; `always_gelu`,
    whether heads that predict pieces have GELU, whatever the blocks have.

    The tensors: `parameters`, our tensors -> BERT's names, if `sizes` are not those of a Transformer; `tensors`, names;
    `heads`, names that apply if there is a head of a form; `fused`, parts of names of tensors that stack several of
    BERT's; `transposed`, parts of names of matrices stored as the transpose of BERT's; `axes`, the sizes of the last
    two axes of a tensor, by its name and the head width, if BERT's has one axis for both, with -1 for the remaining
    size; `halves`, whether rotary positions pair element i of a head with i + K/2, not with its neighbour; `rooted`,
    parts of BERT's names of tensors to multiply by sqrt(K) when read, because scores are not divided by it; `aliases`,
    names that are read if the usual one is absent, and never written; `tables`, tensors of an Architecture without
    learned numbers, by BERT's names; `buffers`, suffixes of such names, which are ignored; `prepare`, a function of a
    file's tensors and config that returns the tensors of an equal model whose mathematics an Architecture has.

    The classes: `classes`, suffixes by the form of a head; a form is missing if their head differs from ours;
    `pretraining`, the class with heads for masked pieces and for next sentences or their order; `causal`, the class of
    left-to-right language models.
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
    read: Callable[[Mapping[str, Any], Problem], dict[str, Any]] = lambda config, problem: {}
    written: Callable[[Architecture], dict[str, Any]] = lambda architecture: {}
    always_gelu: bool = False
    tensors: Names = ()
    heads: Mapping[Form, Names] = field(default_factory=dict)
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    transposed: tuple[str, ...] = ()
    prepare: Callable[[Mapping[str, Tensor], Mapping[str, Any]], Mapping[str, Tensor]] = lambda tensors, config: tensors
    axes: Callable[[str, int], tuple[int, int] | None] = lambda name, width: None
    parameters: Callable[[Architecture], dict[str, tuple[str, ...]]] | None = None
    halves: bool = False
    rooted: tuple[str, ...] = ()
    aliases: Names = ()
    tables: Callable[[Architecture], dict[str, Tensor]] = lambda architecture: {}
    buffers: tuple[str, ...] = ()
    classes: Mapping[Form, str] = field(default_factory=lambda: CLASSES)
    pretraining: str = ""
    causal: str = ""

    @property
    def prefix(self) -> str:
        """Return the prefix of the backbone's tensors."""
        return self.backbone or self.types[0]

    def has(self, architecture: Architecture) -> bool:
        """Return whether an Architecture computes the same as the models of this family."""
        if type(architecture) is not self.sizes:
            return False
        # Every setting that changes the computation must equal the family's value, or else its default.
        free = (*FREE, *self.varies, *(("activation", "piece_activation") if self.always_gelu else ()))
        if self.always_gelu and (architecture.piece_activation or architecture.activation) != "gelu":
            return False
        shaping = (setting for setting in fields(architecture) if setting.name not in free)
        same = all(
            getattr(architecture, setting.name) == self.values.get(setting.name, setting.default) for setting in shaping
        )
        return same and self.fits(architecture)

    def in_bert_fields(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a config.json of the family, with BERT's names for those that both have."""
        bert_fields = {**config}
        for name, value in self.defaults.items():
            if config.get(name) is None:
                bert_fields[name] = value
        known = {name: bert_fields[field] for name, field in self.fields.items() if field in bert_fields}
        for name in self.without:
            bert_fields.pop(name, None)
        return bert_fields | known

    def settings(self, config: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
        """Return the settings beyond BERT's from a config.json with their names. Unsupported values go to `problem`."""
        extra_settings = dict(self.values) | self.read(config, problem)
        if self.always_gelu and ACTIVATIONS.get(str(config.get("hidden_act", "gelu"))) != "gelu":
            extra_settings["piece_activation"] = "gelu"
        for name, only in self.only.items():
            if config.get(name, only) != only:
                problem(
                    f"{name} is {config[name]!r}, which is not supported in {self.types[0]} models; only {only!r} is."
                )
        return extra_settings

    def own_fields(self, known: Mapping[str, Any], architecture: Architecture) -> Iterator[tuple[str, Any]]:
        """Yield the fields of its config.json: BERT's `known` fields renamed, and the fields that BERT lacks."""
        for name, value in known.items():
            if name not in self.without:
                yield self.fields.get(name, name), value
        yield "model_type", self.types[0]
        yield from self.written(architecture).items()

    def canonical(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return a model's tensors by BERT's names, without prefix; unchanged if the family has no names of its own.

        If two tensors would get one name (a pooler inside a classifier, beside the backbone's), the classifier's gets
        it, and the other keeps its own name.
        """
        if not self.tensors:
            return dict(tensors)
        tensors = self.prepare(tensors, config)
        parts = dict(self._split_fused(tensors))
        rules = self._read_rules(tensors, config)
        names = {name: self._bert_name(name, rules) for name in parts}
        # Names that head tensors (those without the backbone's prefix) get.
        heads = {bert_name for name, bert_name in names.items() if not name.startswith(f"{self.prefix}.")}
        bert_tensors = {
            name if name.startswith(f"{self.prefix}.") and bert_name in heads else bert_name: parts[name]
            for name, bert_name in names.items()
        }
        if not self.halves and not self.rooted:
            return bert_tensors
        fields = self.in_bert_fields(config)
        width, count = (fields.get(name) for name in ("hidden_size", "num_attention_heads"))
        if not isinstance(width, int) or not isinstance(count, int) or count < 1:
            return bert_tensors
        wide = fields.get("d_kv") or width // count
        bert_tensors = {
            name: tensor.float() * math.sqrt(wide) if self._is_rooted(name) else tensor
            for name, tensor in bert_tensors.items()
        }
        if not self.halves:
            return bert_tensors
        return {
            name: _halves_to_pairs(tensor, width // count) if _is_rotated(name) else tensor
            for name, tensor in bert_tensors.items()
        }

    def to_family_tensors(
        self, tensors: Mapping[str, Tensor], forms: Container[str], *, prefix: bool, width: int
    ) -> dict[str, Tensor]:
        """Return the family's tensors from tensors with BERT's names: the inverse of `canonical`.

        `forms`: the forms of the heads that are published. `prefix`: whether tensors of the backbone get the family's
        prefix. `width`: the head width K.
        """
        # Part of a name -> its index in the stacked tensor.
        indices = {part: index for parts in self.fused.values() for index, part in enumerate(parts)}
        parts: dict[str, dict[int, Tensor]] = {}
        for name, tensor in tensors.items():
            part = tensor
            if self.halves and _is_rotated(name):  # the inverse of `_halves_to_pairs`
                part = part.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2)
            part = part / math.sqrt(width) if self._is_rooted(name) else part
            index = next((index for fragment, index in indices.items() if fragment in name), 0)
            parts.setdefault(self.tensor_name(name, forms, prefix=prefix), {})[index] = part
        # Several of BERT's tensors have one of their names: stack them in the order of `fused`.
        whole = {name: torch.cat([rows[index] for index in sorted(rows)]) for name, rows in parts.items()}
        return {name: self._split_axes(name, self._transpose(name, part), width) for name, part in whole.items()}

    def tensor_name(self, name: str, forms: Container[str] = (), *, prefix: bool = False) -> str:
        """Return the family's name of a tensor with BERT's name; `forms`: the forms of the published heads.

        `prefix`: whether tensors of the backbone get the family's prefix.
        """
        if name.startswith("heads."):
            return name
        inside = not name.startswith(("cls.", "classifier.", "qa_outputs.", "discriminator_predictions."))
        fused = tuple((fused_name, part) for fused_name, parts in self.fused.items() for part in parts)
        heads = tuple(rule for form, rules in self.heads.items() if form in forms for rule in rules)
        for number, (family_part, bert_part) in enumerate((*fused, *self.tensors, *heads)):
            if (renamed := _replace_part(name, bert_part, family_part)) != name:
                # A rule of a head may move the pooler out of the backbone, into the head: it then gets no prefix.
                of_head = number >= len(fused) + len(self.tensors)
                inside = inside and (
                    not bert_part.startswith("pooler.") or (family_part.startswith("pooler.") and not of_head)
                )
                name = renamed
        return f"{self.prefix}.{name}" if prefix and inside and not self.bare else name

    def class_name(self, forms: Container[str], *, causal: bool = False) -> str:
        """Return the name of the class that holds a backbone with heads of these forms."""
        if causal and "mlm" in forms:
            return self.name + self.causal
        if self.pretraining and "mlm" in forms and ("nsp" in forms or "order" in forms):
            return self.name + self.pretraining
        return self.name + next((end for form, end in self.classes.items() if form in forms), "Model")

    def _split_fused(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors, with stacked tensors split into BERT's."""
        for name, stored in tensors.items():
            if stored.ndim > 1 and not name.startswith("heads.") and self.axes(name, 1):
                # Two axes (H, K) of theirs are one of BERT's.
                stored = stored.flatten(-2)
            tensor = self._transpose(name, stored)
            fused_part = next((part for part in self.fused if part in name and not name.startswith("heads.")), None)
            if fused_part is None:
                yield name, tensor
                continue
            parts = self.fused[fused_part]
            for part, rows in zip(parts, tensor.tensor_split(len(parts)), strict=True):
                yield name.replace(fused_part, part), rows

    def _transpose(self, name: str, tensor: Tensor) -> Tensor:
        """Return the tensor `name` (theirs), transposed if they store the transpose of BERT's matrix."""
        if tensor.ndim != 2 or name.startswith("heads.") or not any(part in name for part in self.transposed):
            return tensor
        return tensor.T.contiguous()

    def _split_axes(self, name: str, tensor: Tensor, width: int) -> Tensor:
        """Return the tensor `name` (theirs), its last axis split in two if theirs has two axes there."""
        axes = None if name.startswith("heads.") else self.axes(name, width)
        return tensor if axes is None else tensor.unflatten(-1, axes)

    def _read_rules(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Names:
        """Return the rules for a file; of heads only those of the form that its class or tensors identify."""
        classes = [str(name) for name in config.get("architectures") or () if isinstance(name, str)]
        # First the class name in the config, then the tensors: a form whose names all occur.
        class_forms = (form for form, end in CLASSES.items() if any(name.endswith(end) for name in classes))
        tensor_forms = (form for form, rules in self.heads.items() if all(_any_in(tensors, part) for part, _ in rules))
        form = next((form for form in (*class_forms, *tensor_forms) if form in self.heads), None)
        rules = self.heads.values() if form is None else (self.heads[form],)
        aliases = (rule for rule in self.aliases if not _any_in(tensors, rule[1]))
        return (*aliases, *self.tensors, *(rule for form_rules in rules for rule in form_rules))

    def _bert_name(self, name: str, rules: Names) -> str:
        if name.startswith("heads."):
            return name
        bare = name.removeprefix(f"{self.prefix}.")
        for family_part, bert_part in rules:
            bare = _replace_part(bare, family_part, bert_part)
        return bare

    def _is_rooted(self, name: str) -> bool:
        """Return whether the tensor `name` (BERT's) is multiplied by sqrt(K) when it is read."""
        return any(part in name for part in self.rooted)


def _any_in(names: Iterable[str], part: str) -> bool:
    return any(part in name for name in names)


def _replace_part(name: str, part: str, other: str) -> str:
    """Return a name with one of its parts replaced.

    >>> _replace_part("h.3.mlp.weight", "h.#.mlp.", "layer.#.up.")
    'layer.3.up.weight'
    """
    if "#" not in part:
        return name.replace(part, other)
    # re.escape turns # into \#, which becomes a group of digits; the group is written back.
    return re.sub(re.escape(part).replace(r"\#", r"(\d+)"), other.replace("#", r"\1"), name)


def rotary_base(table: object, default: Any, field: str, problem: Problem) -> float:
    """Return the base of rotary angles from a table of rope_parameters, else `default`. `field`: for the problems."""
    plain = isinstance(table, dict) and table.get("rope_type", "default") == "default"
    if not plain or not table.keys() <= {"rope_type", "rope_theta"}:  # type: ignore[attr-defined]
        problem(f"rope_parameters ({field}) are {table!r}; only rope_theta with the rope_type 'default' is supported.")
        return 1.0
    value = table.get("rope_theta", default)  # type: ignore[attr-defined]
    if not isinstance(value, int | float) or isinstance(value, bool):
        problem(f"{field} must be a number, but is {value!r}.")
        return 1.0
    return float(value)


def _is_rotated(name: str) -> bool:
    """Return whether the tensor `name` (BERT's) projects queries or keys, which rotary positions rotate."""
    return ".attention.self.query." in name or ".attention.self.key." in name


def _halves_to_pairs(rows: Tensor, width: int) -> Tensor:
    """Reorder the rows (H K, ...) of each head from halves (i, i + K/2) to pairs (2i, 2i + 1); K = `width`."""
    # A width that does not divide the rows: the misfit is reported where shapes are checked.
    if width < 2 or width % 2 or rows.shape[0] % width:
        return rows
    return rows.unflatten(0, (-1, 2, width // 2)).transpose(1, 2).flatten(0, 2)  # (H, 2, K/2, ...) -> (H K, ...)


def every_family() -> Iterator[Family]:
    """Yield all families, in the order of their files' names. A file is imported when its turn comes."""
    return map(_family, _family_names())


@cache
def _family_names() -> tuple[str, ...]:
    return tuple(components.names(FOLDER))


@cache
def _family(name: str) -> Family:
    family: Family = components.module(FOLDER, name).FAMILY
    return family


def of_type(model_type: object) -> Family | None:
    """Return the family of a config.json's model_type; None if it is unknown."""
    if isinstance(model_type, str) and model_type in _family_names():  # then no other file is imported
        family = _family(model_type)
        if model_type in family.types:
            return family
    return next((family for family in every_family() if model_type in family.types), None)


def of_architecture(architecture: Sizes) -> Family | None:
    """Return the family whose models compute the same as these settings; None if there is none."""
    if not isinstance(architecture, Architecture):
        return None
    return next((family for family in every_family() if family.has(architecture)), None)


def has_berts_names(sizes: Sizes) -> TypeGuard[Architecture]:
    """Return whether settings and tensors can be written with BERT's names: a Transformer, or a known family."""
    return type(sizes) is Architecture or of_architecture(sizes) is not None
