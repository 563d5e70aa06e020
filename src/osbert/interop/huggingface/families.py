"""Families of encoders beside BERT: what RoBERTa, XLM-R, DistilBERT and ELECTRA call BERT's tensors and fields.

Each is BERT with other values of the Architecture and other names. So tensors get BERT's names as they are read, and
theirs again as they are written; everything between knows BERT's names alone. RoBERTa: Liu et al. 2019; XLM-R: Conneau
et al. 2020; DistilBERT: Sanh et al. 2019; ELECTRA: Clark et al. 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from osbert.models.architecture import Architecture
from osbert.models.contract import Sizes

Names = tuple[tuple[str, str], ...]
"""Theirs -> BERT's, as parts of tensors' names; written back in the same order."""

_CLASSIFIER: Names = (("classifier.out_proj.", "classifier."), ("classifier.dense.", "pooler.dense."))
"""A classifier of texts that has the pooler within it."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """How a family differs from BERT.

    `types`: their model types; the first is the tensors' prefix, and is written. `name`: how their classes begin.
    `values`: settings of the Architecture that all its models have. `fields`: BERT's config field -> theirs. `tensors`:
    names, and `classifier`, `choice`: those that hold where there is a head for texts, or for choices. `without`: those
    of BERT's fields that it has not. `only`: config fields with the one value that leaves the mathematics as ours is,
    which is also theirs where the field is absent.
    """

    types: tuple[str, ...]
    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    tensors: Names = ()
    classifier: Names = _CLASSIFIER
    choice: Names = ()
    only: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """Return the prefix of the backbone's tensors, and the model type that is written."""
        return self.types[0]


ROBERTA = Family(
    types=("roberta", "xlm-roberta", "camembert"),
    name="Roberta",
    tensors=(
        ("lm_head.dense.", "cls.predictions.transform.dense."),
        ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
        ("lm_head.decoder.", "cls.predictions.decoder."),
        ("lm_head.bias", "cls.predictions.bias"),
    ),
    only={"is_decoder": False, "hidden_act": "gelu"},
)
"""Its masked-LM head has GELU whatever the blocks have: no other curve is read."""

DISTILBERT = Family(
    types=("distilbert",),
    name="DistilBert",
    values={"segments": 0, "pooling": "relu"},
    fields={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "activation",
        "classifier_dropout": "seq_classif_dropout",
    },
    without=("type_vocab_size", "layer_norm_eps", "position_embedding_type"),
    tensors=(
        ("transformer.layer.", "encoder.layer."),
        (".attention.q_lin.", ".attention.self.query."),
        (".attention.k_lin.", ".attention.self.key."),
        (".attention.v_lin.", ".attention.self.value."),
        (".attention.out_lin.", ".attention.output.dense."),
        (".sa_layer_norm.", ".attention.output.LayerNorm."),
        (".ffn.lin1.", ".intermediate.dense."),
        (".ffn.lin2.", ".output.dense."),
        (".output_layer_norm.", ".output.LayerNorm."),
        ("pre_classifier.", "pooler.dense."),
        ("vocab_transform.", "cls.predictions.transform.dense."),
        ("vocab_layer_norm.", "cls.predictions.transform.LayerNorm."),
        ("vocab_projector.bias", "cls.predictions.bias"),
        ("vocab_projector.", "cls.predictions.decoder."),
    ),
    classifier=(),
)

ELECTRA = Family(
    types=("electra",),
    name="Electra",
    values={"pooling": "gelu"},
    tensors=(
        ("generator_predictions.dense.", "cls.predictions.transform.dense."),
        ("generator_predictions.LayerNorm.", "cls.predictions.transform.LayerNorm."),
        ("generator_lm_head.bias", "cls.predictions.bias"),
        ("generator_lm_head.", "cls.predictions.decoder."),
    ),
    choice=(("sequence_summary.summary.", "pooler.dense."),),
    only={
        "is_decoder": False,
        "hidden_act": "gelu",
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
    },
)
"""It has no pooler; where embedding_size is hidden_size, it differs from BERT in its classifier alone."""

FAMILIES = (ROBERTA, DISTILBERT, ELECTRA)
TYPES = {model_type: family for family in FAMILIES for model_type in family.types}
"""Each by the model types that are read as it."""


def of_type(model_type: object) -> Family | None:
    """Return the family of a model type, as a config.json has it; None where it is none."""
    return TYPES.get(model_type) if isinstance(model_type, str) else None


def of_architecture(architecture: Sizes) -> Family | None:
    """Return the family whose models have this mathematics; None for BERT, for RoFormer, and where none has.

    That which they have no model for at all (`huggingface_names.ours_alone`) is not looked at.
    """
    sizes = architecture
    if not isinstance(sizes, Architecture):
        return None
    if sizes.positions == "rotary" or sizes.direction == "left_to_right":
        return None
    if sizes.first_position:
        fits = sizes.activation == "gelu" and sizes.pooling == "tanh" and sizes.segments and not sizes.embedding
        return ROBERTA if fits else None
    if not sizes.segments:
        fits = sizes.pooling == "relu" and sizes.epsilon == Architecture.epsilon and not sizes.embedding
        return DISTILBERT if fits else None
    return ELECTRA if sizes.pooling == "gelu" and sizes.activation == "gelu" else None


def in_bert_fields(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a family's config.json with BERT's names of the fields that both have."""
    known = {name: config[theirs] for name, theirs in family.fields.items() if theirs in config}
    return {name: value for name, value in config.items() if name not in family.without} | known


def values(family: Family, config: Mapping[str, Any], problem: Callable[[str], None]) -> dict[str, Any]:
    """Return the settings that a config.json of a family gives beyond BERT's; what cannot be goes to `problem`."""
    found = dict(family.values)
    if family is ROBERTA:
        pad = config.get("pad_token_id", 1)
        if not isinstance(pad, int) or pad < 0:
            problem(f"pad_token_id must be a whole number, since positions begin behind it, but is {pad!r}.")
        else:
            found["first_position"] = pad + 1
    if family is ELECTRA:
        width = config.get("embedding_size", 128)
        if not isinstance(width, int):
            problem(f"embedding_size must be a whole number, but is {width!r}.")
        elif width != config.get("hidden_size"):
            found["embedding"] = width
    for name, only in family.only.items():
        if config.get(name, only) != only:
            problem(f"{name} is {config[name]!r}, which is not supported in {family.prefix} models; only {only!r} is.")
    return found


def canonical(tensors: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Return a model's tensors by BERT's names, without the prefix of their own.

    Where two would have one name (a classifier that has a pooler within, beside a pooler), the classifier's gets it;
    the other keeps its own.
    """
    names = {theirs: _bert_name(theirs, family) for theirs in tensors}
    heads = {ours for theirs, ours in names.items() if not theirs.startswith(f"{family.prefix}.")}
    return {
        theirs if theirs.startswith(f"{family.prefix}.") and ours in heads else ours: tensors[theirs]
        for theirs, ours in names.items()
    }


def spelled(name: str, family: Family, forms: Container[str] = (), *, prefix: bool = False) -> str:
    """Return their name of a tensor that has BERT's; `forms`: those of the heads published with it.

    `prefix`: whether what belongs to the backbone gets the family's prefix.
    """
    if name.startswith("heads."):
        return name
    rules = [*family.tensors]
    if "sequence" in forms:
        rules += family.classifier
    if "choice" in forms:
        rules += family.choice
    inside = not name.startswith(("cls.", "classifier.", "qa_outputs."))
    for theirs, ours in rules:
        if ours in name:
            inside = inside and not ours.startswith("pooler.")
            name = name.replace(ours, theirs)
    return f"{family.prefix}.{name}" if prefix and inside else name


def class_name(bert: str, family: Family) -> str:
    """Return the name of the family's class that stands for one of BERT's."""
    return family.name + bert.removeprefix("Bert")


def own_fields(family: Family, fields: Mapping[str, Any], architecture: Architecture) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a family's config.json for BERT's `fields`: renamed, and with those that BERT has not."""
    for name, value in fields.items():
        if name not in family.without:
            yield family.fields.get(name, name), value
    yield "model_type", family.prefix
    if family is ROBERTA:
        yield "pad_token_id", architecture.first_position - 1
        yield "max_position_embeddings", architecture.length + architecture.first_position
    if family is ELECTRA:
        yield "embedding_size", architecture.embedding or architecture.width


def _bert_name(name: str, family: Family) -> str:
    if name.startswith("heads."):
        return name
    bare = name.removeprefix(f"{family.prefix}.")
    for theirs, ours in (*family.tensors, *family.classifier, *family.choice):
        bare = bare.replace(theirs, ours)
    return bare
