"""config.json: converts the fields of BERT, its family and our own to the settings of a backbone, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields as fields_of
from functools import cache, partial
from typing import Any, get_args, get_type_hints

from osbert import recipe
from osbert.errors import Problems, UserError, nearest
from osbert.extensions import advise_lab
from osbert.interop.huggingface.family import (
    ACTIVATIONS,
    Family,
    activation_name,
    every_family,
    has_berts_names,
    of_architecture,
    of_type,
)
from osbert.interop.huggingface.names import OWN, model_type
from osbert.models.architecture import Architecture
from osbert.models.contract import Sizes, find_family

FAMILY, SETTINGS = "osbert_family", "osbert_architecture"
"""Our config fields for families that Hugging Face does not have: the family's name, and its settings."""

SIZES = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feedforward",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "length",
}
"""Their required config fields -> our sizes."""

SEGMENTS = "type_vocab_size"

NUMBERS = {
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "layer_norm_eps": "epsilon",
    "initializer_range": "deviation",
}
"""Their optional config fields -> our settings, with equal defaults."""

DECODER_FIELD = "is_decoder"
"""Their config field for causal attention, in all three model types."""

SCALED = "osbert_scaled_outputs"
"""A config field of our own, written if it differs from the family's value: the initialisation of new weights."""

OURS = {"osbert_neighbours": "neighbours", "osbert_recurrent": "recurrent", "osbert_adapters": "adapters"}
"""Config fields of our own in every model type, written if not 0 -> our settings."""

STATED = ("positions", "normalization", "biases")
"""The settings that are always written in a config of our own model type."""

LARGEST = 2**31
"""Upper bound (exclusive) of the numbers in a config."""

REFUSED: Mapping[str, tuple[Any, ...]] = {
    "position_embedding_type": (None, "absolute", "rotary"),
    "add_cross_attention": (None, False),
    "is_encoder_decoder": (None, False),
    "rotary_value": (None, False),
    "pruned_heads": (None, {}, []),
    "quantization_config": (None, {}),
}
"""Config fields that change the computation, with the only supported values."""


def architecture(config: Mapping[str, Any], *, where: str) -> Sizes:
    """Return the settings of the backbone that a config.json describes; `where` names the file in errors.

    A config without `model_type`, as in the first releases, is BERT's. Raises UserError that lists every field that is
    missing, has a wrong type, or has an unsupported value.
    """
    if FAMILY in config:
        name, table = config[FAMILY], config.get(SETTINGS, {})
        if not isinstance(name, str) or not isinstance(table, Mapping):
            raise UserError(
                f"{where}: {FAMILY} must be a name and {SETTINGS} a table. Copy the file again.", code="damaged-file"
            )
        sizes: Sizes = recipe.build(find_family(name).settings, table, where=where)
        return sizes
    problems = Problems(heading=f"{where} does not describe a supported model")
    kind = config.get("model_type", "bert")
    family = of_type(kind)
    if family is None and kind != OWN:
        known = ", ".join(type_name for family in every_family() for type_name in family.types)
        message = f"model_type is {kind!r}; only {known} and {OWN} can be read.{advise_lab()}"
        problems.add(message, code="unsupported-model")
        problems.stop_if_any()
    original_config, config = config, family.in_bert_fields(config) if family else config
    refuse = partial(problems.add, code="unsupported-model")
    settings = _bert_settings(config, family, refuse)
    settings |= family.settings(original_config, refuse) if family else dict(_own_settings(config, refuse))
    if not isinstance(scaled := config.get(SCALED, False), bool):
        refuse(f"{SCALED} is {scaled!r}; it must be true or false.")
    settings |= {"scaled_outputs": scaled} if SCALED in config else {}
    problems.stop_if_any()
    architecture = (family.sizes if family else Architecture)(**settings)
    for message in architecture.problems():
        problems.add(f"{message}.", code="unsupported-model")
    problems.stop_if_any()
    return architecture


def config(architecture: Sizes, heads: Mapping[str, Any] | None = None, *, closed: bool = False) -> dict[str, Any]:
    """Return the config.json fields that describe a backbone, with those of its heads, by BERT's names.

    `closed`: whether there is a head that their class for it does not hold; the model type is then ours.
    """
    if not has_berts_names(architecture) or (closed and type(architecture) is not Architecture):
        settings = {FAMILY: architecture.family, SETTINGS: recipe.as_table(architecture)}
        return {"model_type": OWN, **settings, **(heads or {})}
    family = of_architecture(architecture)
    fields = _bert_config(architecture, OWN if closed else model_type(architecture)) | dict(heads or {})
    if family is None or fields["model_type"] == OWN:
        return fields
    return dict(family.own_fields(fields, architecture))


def _bert_config(architecture: Architecture, kind: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"model_type": kind, "hidden_act": activation_name(architecture.activation)}
    names = {**SIZES, SEGMENTS: "segments", **NUMBERS}
    fields |= {field: getattr(architecture, setting) for field, setting in names.items()}
    fields |= {field: value for field, setting in OURS.items() if (value := getattr(architecture, setting))}
    family = of_type(kind)
    scaled = family.values.get("scaled_outputs", False) if family else False
    fields |= {SCALED: architecture.scaled_outputs} if architecture.scaled_outputs != scaled else {}
    fields |= {DECODER_FIELD: True} if architecture.direction == "left_to_right" else {}
    if kind == OWN:
        return fields | {
            field: getattr(architecture, setting)
            for field, setting in own_fields().items()
            if setting in STATED or getattr(architecture, setting) != getattr(Architecture, setting)
        }
    return fields | ({"position_embedding_type": "absolute"} if architecture.positions == "learned" else {})


@cache
def own_fields() -> dict[str, str]:
    """Return the config fields of our own model type -> the settings of the Architecture that BERT has no field for."""
    known = {*SIZES.values(), *NUMBERS.values(), *OURS.values()}
    known |= {"segments", "activation", "direction", "scaled_outputs"}
    return {f"osbert_{setting.name}": setting.name for setting in fields_of(Architecture) if setting.name not in known}


def _bert_settings(config: Mapping[str, Any], family: Family | None, problem: Callable[[str], None]) -> dict[str, Any]:
    """Return the settings in the fields that BERT has, too. Values that are not supported are reported to `problem`."""
    for field, accepted in REFUSED.items():
        if config.get(field) not in accepted:
            problem(f"{field} is {config[field]!r}, which changes the model's mathematics and is not supported.")
    activation = str(config.get("hidden_act", "gelu"))
    if activation not in ACTIVATIONS:
        field = family.fields.get("hidden_act", "hidden_act") if family else "hidden_act"
        known = ", ".join(ACTIVATIONS)
        problem(f"{field} is {config['hidden_act']!r}; supported are {known}.{nearest(activation, ACTIVATIONS)}")
    if config.get("embedding_size") not in (None, config.get("hidden_size")):
        problem(f"embedding_size {config['embedding_size']} differs from hidden_size {config.get('hidden_size')}.")
    direction = "left_to_right" if config.get(DECODER_FIELD) else "both"
    settings = {"activation": ACTIVATIONS.get(activation), "direction": direction}
    fractions = {*NUMBERS, "osbert_neighbours"}
    for bert_field, setting in {**SIZES, SEGMENTS: "segments", **NUMBERS, **OURS}.items():
        value = config.get(bert_field, "missing" if bert_field in SIZES else getattr(Architecture, setting))
        field = family.fields.get(bert_field, bert_field) if family else bert_field
        is_fraction = bert_field in fractions
        if isinstance(value, bool) or not isinstance(value, float | int if is_fraction else int):
            problem(f"{field} must be a {'' if is_fraction else 'whole '}number, but is {value!r}.")
        elif abs(value) >= LARGEST:
            problem(f"{field} is {value}, larger than in any model. Is the file damaged?")
        settings[setting] = value
    return settings


def _own_settings(config: Mapping[str, Any], problem: Callable[[str], None]) -> Iterator[tuple[str, Any]]:
    """Yield the settings in the additional fields of our own model type. Invalid values are reported to `problem`."""
    kinds = get_type_hints(Architecture)
    for field, setting in own_fields().items():
        value = config.get(field, "missing" if setting in STATED else getattr(Architecture, setting))
        choices = (True, False) if kinds[setting] is bool else get_args(kinds[setting])
        number = int if kinds[setting] is int else int | float
        if choices and value not in choices:
            problem(f"{field} is {value!r}; it must be one of {choices}.")
        elif not choices and (isinstance(value, bool) or not isinstance(value, number) or value >= LARGEST):
            problem(f"{field} must be a {'whole ' if number is int else ''}number, but is {value!r}.")
        yield setting, value
