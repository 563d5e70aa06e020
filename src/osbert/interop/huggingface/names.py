"""Hugging Face's names: which of BERT's tensors and config fields are which of ours.

Those of other families are made BERT's as they are read, and theirs as they are written: family.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import fields as fields_of
from functools import cache
from typing import Any, get_args, get_type_hints

from osbert.errors import Problems, nearest
from osbert.interop.huggingface import own
from osbert.interop.huggingface.family import Family, every_family, of_architecture, of_type
from osbert.models.architecture import Architecture
from osbert.models.contract import Head, Sizes
from osbert.models.forms import Form, Values

PREFIXES = ("bert", "roformer")
"""The prefixes of the backbone's tensors where these have BERT's names."""

OWN = "osbert"
"""Our own model type, for what they have no model for: AutoModel then refuses the folder instead of computing else."""

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
"""Their names of activations -> ours; the first of several names for one curve is the one written."""

SIZES = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feedforward",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "length",
}
"""Their config fields that must be there -> our sizes."""

SEGMENTS = "type_vocab_size"

NUMBERS = {
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "layer_norm_eps": "epsilon",
    "initializer_range": "deviation",
}
"""Their config fields that may be absent, with our defaults, which are theirs."""

NEIGHBOURS = "osbert_neighbours"
"""A config field of our own, where it is not 0: how fresh weights of this architecture start (--from-scratch)."""

DECODER_FIELD = "is_decoder"
"""Their config field that makes every token see only what is before it, in all three model types."""

ADAPTERS = "osbert_adapters"
"""A config field of our own, where it is not 0: how wide the adapters in each block are."""

RECURRENT = "osbert_recurrent"
"""A config field of our own, where it is not 0: how many recurrent layers stand on top."""

SCALED = "osbert_scaled_residuals"
"""A config field of our own, where the family's value is another: how fresh weights of this architecture start."""

ANYWHERE = ("neighbours", "adapters", "recurrent", "scaled_residuals")
"""The settings that have a field of our own in every model type."""

STATED = ("positions", "normalization", "biases")
"""The settings that a config of our own model type always has."""

LARGEST = 2**31
"""No number of a config reaches this."""

REFUSED: Mapping[str, tuple[Any, ...]] = {
    "position_embedding_type": (None, "absolute", "rotary"),
    "add_cross_attention": (None, False),
    "is_encoder_decoder": (None, False),
    "rotary_value": (None, False),
    "pruned_heads": (None, {}, []),
    "quantization_config": (None, {}),
}
"""Config fields that change the mathematics, with the only values that leave it as ours is."""

_CLASSIFIER = {"linear.weight": "classifier.weight", "linear.bias": "classifier.bias"}

HEADS: Mapping[Form, Mapping[str, str]] = {
    "mlm": {
        "dense.weight": "cls.predictions.transform.dense.weight",
        "dense.bias": "cls.predictions.transform.dense.bias",
        "norm.weight": "cls.predictions.transform.LayerNorm.weight",
        "norm.bias": "cls.predictions.transform.LayerNorm.bias",
        "bias": "cls.predictions.bias",
    },
    "nsp": {"linear.weight": "cls.seq_relationship.weight", "linear.bias": "cls.seq_relationship.bias"},
    "sequence": _CLASSIFIER,
    "choice": _CLASSIFIER,
    "span": {"linear.weight": "qa_outputs.weight", "linear.bias": "qa_outputs.bias"},
    "tokens": _CLASSIFIER,
}
"""Our parameters of a head -> their tensors, by the form of the head's outputs."""


def head_names(form: Form, architecture: Sizes) -> Mapping[str, str]:
    """Return the parameters of a published head of a form -> their tensors; none for a head that has none here."""
    return {} if form == "mlm" and not architecture.transform else HEADS.get(form, {})


HEAD_PREFIXES = ("cls.", "classifier.", "qa_outputs.", "heads.", "discriminator_predictions.")
"""How the names of tensors begin that belong to heads."""

BIAS = "cls.predictions.bias"
DECODER_BIAS = "cls.predictions.decoder.bias"
DECODER = "cls.predictions.decoder.weight"
"""The masked-LM head's vocabulary product: the piece embeddings again when tied, as they always are with us."""

PIECES = "embeddings.word_embeddings.weight"

BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Backbone tensors that hold no learned numbers: counters."""

_BLOCK = {
    "attention.inward": (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    ),
    "attention.outward": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
    "feedforward_norm": ("output.LayerNorm",),
}

_ADAPTERS = {
    f"{ours}.{part}": (f"{theirs}.{part}",)
    for ours, theirs in (("attention_adapter", "attention.output.adapter"), ("feedforward_adapter", "output.adapter"))
    for part in ("down", "up")
}
"""Our adapters -> the names that their tensors get, after those of the first implementations."""


def backbone(architecture: Sizes) -> dict[str, tuple[str, ...]]:
    """Return our backbone's tensors -> theirs without prefix; of several, ours holds the rows of all in turn."""
    return _bert_names(architecture) if isinstance(architecture, Architecture) else own.names(architecture)


def _bert_names(architecture: Architecture) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {"embeddings.pieces.weight": (PIECES,)}
    if architecture.segments:
        names["embeddings.segments.weight"] = ("embeddings.token_type_embeddings.weight",)
    if architecture.positions == "learned":
        names["embeddings.positions.weight"] = ("embeddings.position_embeddings.weight",)
    if architecture.normalization == "pre":
        names |= _both("norm", ("encoder.LayerNorm",))
    names |= _both("embeddings.norm", ("embeddings.LayerNorm",)) if architecture.embedding_norm else {}
    if architecture.embedding:
        names |= _both("embeddings.projection", ("embeddings_project",))
    for layer in range(architecture.blocks):
        for ours, theirs in _BLOCK.items():
            names |= _both(f"blocks.{layer}.{ours}", tuple(f"encoder.layer.{layer}.{name}" for name in theirs))
    if not architecture.biases:
        names = {ours: theirs for ours, theirs in names.items() if not ours.endswith(".bias")}
    for layer in range(architecture.blocks) if architecture.adapters else ():
        for ours, theirs in _ADAPTERS.items():
            names |= _both(f"blocks.{layer}.{ours}", tuple(f"encoder.layer.{layer}.{name}" for name in theirs))
    names |= {f"recurrent.lstm.{name}": (f"recurrent.{name}",) for name in _recurrent(architecture.recurrent)}
    return names | _both("pooler", ("pooler.dense",))


def plain(name: str) -> str:
    """Return a tensor's name without the backbone's prefix and with today's words for TensorFlow's gamma and beta."""
    for prefix in (*PREFIXES, OWN):
        name = name.removeprefix(f"{prefix}.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def architecture(config: Mapping[str, Any], *, where: str) -> Sizes:
    """Return the settings of the backbone that a config.json describes; `where` names the file in errors.

    A config without `model_type` is taken for BERT: those of the first releases have none. Raises UserError that lists
    every field that is missing, mistyped, or asks for mathematics other than ours.
    """
    if own.FAMILY in config:
        return own.settings(config, where=where)
    problems = Problems(heading=f"{where} does not describe a model that can be opened")
    kind = config.get("model_type", "bert")
    family = of_type(kind)
    if family is None and kind != OWN:
        known = ", ".join(one for family in every_family() for one in family.types)
        problems.add(f"model_type is {kind!r}; only {known} and {OWN} can be read.", code="unsupported-model")
        problems.stop_if_any()
    theirs, config = config, family.in_bert_fields(config) if family else config
    for message in _refusals(config, family):
        problems.add(message, code="unsupported-model")
    settings: dict[str, Any] = dict(_numbers(config, family, problems.add))
    settings["activation"] = _known(config.get("hidden_act", "gelu"), ACTIVATIONS)
    settings["direction"] = "left_to_right" if config.get(DECODER_FIELD) else "both"
    settings |= family.settings(theirs, problems.add) if family else dict(_own_settings(config, problems.add))
    if not isinstance(scaled := config.get(SCALED, False), bool):
        problems.add(f"{SCALED} is {scaled!r}; it must be true or false.", code="unsupported-model")
    settings |= {"scaled_residuals": scaled} if SCALED in config else {}
    problems.stop_if_any()
    architecture = Architecture(**settings)
    for message in architecture.problems():
        problems.add(f"{message}.", code="unsupported-model")
    problems.stop_if_any()
    return architecture


PROBLEMS: Mapping[Values, str] = {
    "classes": "single_label_classification",
    "labels": "multi_label_classification",
    "numbers": "regression",
}
"""What the outputs of a sequence are -> their problem_type."""

FIRST_TOKEN: Mapping[Form, str] = {"nsp": "next sentences", "sequence": "classes", "choice": "choices"}
"""The forms of heads that read a sequence's pooled state, with what they give."""


def other_head(head: Head, architecture: Sizes) -> str:
    """Return why a head is another one in their class for an Architecture; "" where it is the same.

    Where a token sees only what is before it, their pooler still reads the first one, ours the last. RoFormer has no
    pooler: its classifiers have a dense layer of their own with the curve of the blocks, and there is no class at all
    for next sentences, so nothing opens as one. Their heads are one layer, so that one with more is none of theirs.
    """
    if not isinstance(architecture, Architecture):
        return ""
    own = {name for name in head.state_dict() if not name.startswith(head.beside)}
    if head.form in HEADS and own != head_names(head.form, architecture).keys():
        return f"a {type(head).__name__}"
    if head.form not in FIRST_TOKEN:
        return ""
    given = "a number" if head.values == "numbers" else FIRST_TOKEN[head.form]
    family = of_architecture(architecture)
    if architecture.positions == "rotary" and not (family and head.form in family.classes):
        return "" if head.form == "nsp" else f"positions = rotary under a head for {given}"
    return f"direction = left_to_right under a head for {given}" if architecture.causal else ""


def config(architecture: Sizes, heads: Mapping[str, Any] | None = None, *, closed: bool = False) -> dict[str, Any]:
    """Return the config.json fields that describe a backbone, with those of its heads, by BERT's names.

    `closed`: whether there is a head that their class for it does not hold; the model type is then ours.
    """
    if not isinstance(architecture, Architecture):
        return {"model_type": OWN, **own.config(architecture), **(heads or {})}
    family = of_architecture(architecture)
    fields = _bert_config(architecture, OWN if closed else model_type(architecture)) | dict(heads or {})
    if family is None or fields["model_type"] == OWN:
        return fields
    return dict(family.own_fields(fields, architecture))


def _bert_config(architecture: Architecture, kind: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"model_type": kind, "hidden_act": _written(architecture.activation)}
    names = {**SIZES, SEGMENTS: "segments", **NUMBERS}
    fields |= {theirs: getattr(architecture, ours) for theirs, ours in names.items()}
    fields |= {NEIGHBOURS: architecture.neighbours} if architecture.neighbours else {}
    fields |= {RECURRENT: architecture.recurrent} if architecture.recurrent else {}
    fields |= {ADAPTERS: architecture.adapters} if architecture.adapters else {}
    family = of_type(kind)
    scaled = family.values.get("scaled_residuals", False) if family else False
    fields |= {SCALED: architecture.scaled_residuals} if architecture.scaled_residuals != scaled else {}
    fields |= {DECODER_FIELD: True} if architecture.direction == "left_to_right" else {}
    if kind == OWN:
        return fields | {
            theirs: getattr(architecture, ours)
            for theirs, ours in own_fields().items()
            if ours in STATED or getattr(architecture, ours) != getattr(Architecture, ours)
        }
    return fields | ({"position_embedding_type": "absolute"} if architecture.positions == "learned" else {})


def model_type(architecture: Architecture) -> str:
    """Return the model type under which an Architecture is written: theirs where they have the same mathematics."""
    family = of_architecture(architecture)
    return family.types[0] if family else OWN


def ours_alone(architecture: Sizes) -> tuple[str, ...]:
    """Return what of an Architecture they have no model for, as settings: "biases = False"."""
    if not isinstance(architecture, Architecture):
        return (f"family = {architecture.family}",)
    if of_architecture(architecture):
        return ()
    known: dict[str, Any] = {"normalization": "post", "biases": True, "recurrent": 0, "adapters": 0, "distinct": 0}
    if of_architecture(architecture.changed(**known)) is None:
        known |= {ours: getattr(Architecture, ours) for ours in own_fields().values() if ours not in STATED}
        known |= {} if architecture.segments else {"segments": 2}
    return tuple(
        f"{name} = {getattr(architecture, name)}"
        for name, value in known.items()
        if getattr(architecture, name) != value
    )


def model_class(forms: Container[str], architecture: Sizes) -> str:
    """Return the name of their class that holds a backbone with heads of these forms."""
    family = of_architecture(architecture)
    if family is None:
        return "OsbertModel"
    assert isinstance(architecture, Architecture)
    return family.class_name(forms, causal=architecture.direction == "left_to_right")


@cache
def own_fields() -> dict[str, str]:
    """Return the config fields of our own model type -> the settings of the Architecture that BERT has no field for."""
    known = {*SIZES.values(), *NUMBERS.values(), "segments", "activation", "direction", *ANYWHERE}
    return {f"osbert_{one.name}": one.name for one in fields_of(Architecture) if one.name not in known}


def _recurrent(layers: int) -> Iterator[str]:
    """Yield torch's names of the weights of recurrent layers in both directions."""
    for layer in range(layers):
        for direction in ("", "_reverse"):
            yield from (f"{kind}_l{layer}{direction}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))


def _written(activation: str) -> str:
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation)


def _known(value: object, table: Mapping[str, str]) -> str | None:
    """Return what stands for a value in a table, None also where it is no word at all."""
    return table.get(value) if isinstance(value, str) else None


def _numbers(
    config: Mapping[str, Any], family: Family | None, problem: Callable[[str], None]
) -> Iterator[tuple[str, Any]]:
    """Yield the settings that are numbers; what is none goes to `problem`."""
    whole = {**SIZES, SEGMENTS: "segments", RECURRENT: "recurrent", ADAPTERS: "adapters"}
    for theirs, ours in {**whole, **NUMBERS, NEIGHBOURS: "neighbours"}.items():
        value = config.get(theirs, "missing" if theirs in SIZES else getattr(Architecture, ours))
        field = family.fields.get(theirs, theirs) if family else theirs
        if isinstance(value, bool) or not isinstance(value, int if theirs in whole else float | int):
            problem(f"{field} must be a {'whole ' if theirs in whole else ''}number, but is {value!r}.")
        elif abs(value) >= LARGEST:
            problem(f"{field} is {value}, more than any model has.")
        yield ours, value


def _own_settings(config: Mapping[str, Any], problem: Callable[[str], None]) -> Iterator[tuple[str, Any]]:
    """Yield the settings in the further fields of our own model type; what cannot be goes to `problem`."""
    kinds = get_type_hints(Architecture)
    for theirs, ours in own_fields().items():
        value = config.get(theirs, "missing" if ours in STATED else getattr(Architecture, ours))
        choices = (True, False) if kinds[ours] is bool else get_args(kinds[ours])
        if choices and value not in choices:
            problem(f"{theirs} is {value!r}; it must be one of {choices}.")
        elif not choices and (isinstance(value, bool) or not isinstance(value, int) or value >= LARGEST):
            problem(f"{theirs} must be a whole number, but is {value!r}.")
        yield ours, value


def _refusals(config: Mapping[str, Any], family: Family | None) -> Iterator[str]:
    for field, accepted in REFUSED.items():
        if config.get(field) not in accepted:
            yield f"{field} is {config[field]!r}, which changes the model's mathematics and is not supported."
    activation = config.get("hidden_act", "gelu")
    if _known(activation, ACTIVATIONS) is None:
        field = family.fields.get("hidden_act", "hidden_act") if family else "hidden_act"
        yield (f"{field} is {activation!r}; known are {', '.join(ACTIVATIONS)}.{nearest(str(activation), ACTIVATIONS)}")
    if config.get("embedding_size") not in (None, config.get("hidden_size")):
        yield f"embedding_size {config['embedding_size']} differs from hidden_size {config.get('hidden_size')}."


def _both(ours: str, theirs: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {f"{ours}.{part}": tuple(f"{name}.{part}" for name in theirs) for part in ("weight", "bias")}
