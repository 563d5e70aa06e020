"""Hugging Face's names of BERT's tensors, and ours.

Names of other families are converted to BERT's when they are read, and back when they are written: family.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from osbert.interop.huggingface.family import FREE, has_berts_names, of_architecture
from osbert.models.architecture import Architecture
from osbert.models.contract import Head, Sizes
from osbert.models.forms import Form, Values
from osbert.models.heads.contrastive import ApartHead
from osbert.models.heads.predictions import TextHead

PREFIXES = ("bert", "roformer", "ernie")
"""Prefixes of the backbone's tensors in files with BERT's names."""

OWN = "osbert"
"""Our own model type for models that transformers does not have: AutoModel rejects it instead of misreading it."""

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
    "order": {"linear.weight": "cls.seq_order.weight", "linear.bias": "cls.seq_order.bias"},
    "sequence": _CLASSIFIER,
    "choice": _CLASSIFIER,
    "span": {"linear.weight": "qa_outputs.weight", "linear.bias": "qa_outputs.bias"},
    "tokens": _CLASSIFIER,
    "replaced": {
        "dense.weight": "discriminator_predictions.dense.weight",
        "dense.bias": "discriminator_predictions.dense.bias",
        "linear.weight": "discriminator_predictions.dense_prediction.weight",
        "linear.bias": "discriminator_predictions.dense_prediction.bias",
    },
}
"""Our parameters of a head -> their tensors, by the form of the head. They are BERT's names, and ELECTRA's for replaced
tokens; the name for order is ours, since BERT has no such head."""

_TRANSFORM = {
    f"transform.{layer}.{part}": f"cls.transform.{bert_layer}.{part}"
    for layer, bert_layer in (("dense", "dense"), ("norm", "LayerNorm"))
    for part in ("weight", "bias")
}
"""The transform of a head for tokens or spans; BERT has none."""


def export_form(form: Form) -> Form:
    """Return the form under which a head is published: text heads as language-model heads."""
    return "mlm" if form == "text" else form


def head_names(form: Form, sizes: Sizes) -> Mapping[str, str]:
    """Return our parameters of a head of this form -> their tensors; empty if the form has no published names."""
    form = export_form(form)
    name_map = HEADS.get(form, {})
    if form == "mlm" and not sizes.piece_transform:
        name_map = {"bias": BIAS} if sizes.piece_biases else {}
    if form == "mlm" and not sizes.tied:
        name_map = {**name_map, "table.weight": DECODER}
    if sizes.head_transform and form in ("tokens", "span"):
        name_map = {**name_map, **_TRANSFORM}
    without: tuple[str, ...] = () if sizes.head_biases else ("dense.bias", "norm.bias")
    without += ("norm.bias",) if sizes.root_norm else ()
    return {parameter: bert_name for parameter, bert_name in name_map.items() if not parameter.endswith(without)}


HEAD_PREFIXES = (
    *("cls.", "classifier.", "qa_outputs.", "heads."),
    *("discriminator_predictions.", "mask_predictions.", "lm_predictions."),
)
"""Prefixes of the names of tensors of heads."""

BIAS = "cls.predictions.bias"
DECODER_BIAS = "cls.predictions.decoder.bias"
DECODER = "cls.predictions.decoder.weight"
"""The masked-LM head's vocabulary product: the piece embeddings again when tied, else a table of the head's own."""

SCORES_BIAS = "final_logits_bias"
"""BART's bias of the scores of pieces, which is not learned and usually 0."""

_TABLES = {
    "pieces": "word_embeddings",
    "segments": "token_type_embeddings",
    "tasks": "task_type_embeddings",
    "positions": "position_embeddings",
}
"""Our tables of embeddings -> theirs."""

PIECES = "embeddings.word_embeddings.weight"

BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Tensors of the backbone without learned numbers: position and segment indices."""

_BLOCK = {
    "attention.inward": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.outward": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
    "feedforward_norm": ("output.LayerNorm",),
}

_SHARING = {"attention.query": _BLOCK["attention.inward"][:1], "attention.inward": _BLOCK["attention.inward"][1:]}
"""The names for attention with shared keys and values."""

_GATED = {"up": ("intermediate.dense", "intermediate.gate")}
"""The names for gated feed-forward layers: the input of the activation, and the factor of its output."""

_RELATIVE = ("inward.weight", "content", "distance", "segment", "segments")
"""The parameters of attention with scores of distances."""

_ADAPTERS = {
    f"{module}.{part}": (f"{bert_module}.{part}",)
    for module, bert_module in (
        ("attention_adapter", "attention.output.adapter"),
        ("feedforward_adapter", "output.adapter"),
    )
    for part in ("down", "up")
}
"""Our adapters -> the published names, which follow the first implementations."""


def backbone(architecture: Sizes) -> dict[str, tuple[str, ...]]:
    """Return our backbone's tensors -> theirs without prefix. If there are several, ours stacks their rows in order."""
    if not has_berts_names(architecture):
        # Hugging Face has no such family: its tensors have their own names, a shared one the first of its names.
        state = architecture.empty().state_dict(keep_vars=True)
        return {name: (name,) for name in {id(tensor): name for name, tensor in reversed(state.items())}.values()}
    family = None if type(architecture) is Architecture else of_architecture(architecture)
    names = family.parameters(architecture) if family and family.parameters else transformer_names(architecture)
    return without(names, "norm.bias") if architecture.root_norm else names


def transformer_names(architecture: Architecture) -> dict[str, tuple[str, ...]]:
    """Return the tensors of a Transformer -> BERT's."""
    absent = {
        "segments": not architecture.segments or architecture.segment_scores,
        "tasks": not architecture.tasks,
        "positions": architecture.positions != "learned",
    }
    names: dict[str, tuple[str, ...]] = {}
    for name, bert_name in _TABLES.items():
        if not absent.get(name, False):
            names[f"embeddings.{name}.weight"] = (f"embeddings.{bert_name}.weight",)
    if architecture.distance_scores:
        names["embeddings.distance_scores.table.weight"] = ("encoder.relative_attention_bias.weight",)
    if architecture.normalization == "pre":
        names |= weight_and_bias("norm", ("encoder.LayerNorm",))
    names |= weight_and_bias("embeddings.norm", ("embeddings.LayerNorm",)) if architecture.embedding_norm else {}
    if architecture.embedding:
        names |= weight_and_bias("embeddings.projection", ("embeddings_project",))
    if architecture.project_first:
        del names["embeddings.projection.bias"]
    if architecture.positions == "disentangled":
        names["embeddings.distances.table.weight"] = ("encoder.rel_embeddings.weight",)
        if architecture.distance_norm:
            names |= weight_and_bias("embeddings.distances.norm", ("encoder.relative_norm",))
    names |= _block_names(architecture)
    if architecture.norm_biases:
        # Biases in norms alone (NomicBERT).
        names = {
            parameter: bert_names
            for parameter, bert_names in names.items()
            if not parameter.endswith(".bias") or "norm." in parameter
        }
    elif not architecture.biases:
        names = without(names, ".bias")
    return names | _extra_names(architecture)


def _block_names(architecture: Architecture) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {}
    parts = _BLOCK | (_GATED if architecture.gated else {}) | (_SHARING if architecture.key_heads else {})
    for layer in range(architecture.blocks):
        for module, bert_modules in parts.items():
            names |= weight_and_bias(f"blocks.{layer}.{module}", bert_modules, inside=f"encoder.layer.{layer}.")
        if architecture.distance_projections:
            inside = f"encoder.layer.{layer}.attention.self."
            names |= weight_and_bias(
                f"blocks.{layer}.attention.distance_inward", ("pos_query", "pos_key"), inside=inside
            )
        if architecture.positions == "distances":
            own_ones = (name for name in _RELATIVE if architecture.segment_scores or "segment" not in name)
            names |= {
                f"blocks.{layer}.attention.relative.{name}": (f"encoder.layer.{layer}.attention.self.relative.{name}",)
                for name in own_ones
            }
            for part in ("inward", "outward", *(["query"] if architecture.key_heads else [])):
                del names[f"blocks.{layer}.attention.{part}.bias"]
        if architecture.gated:
            del names[f"blocks.{layer}.up.bias"]
    if not architecture.first_norm:
        for part in ("weight", "bias"):
            del names[f"blocks.0.attention_norm.{part}"]
    return names


def _extra_names(architecture: Architecture) -> dict[str, tuple[str, ...]]:
    """Return the names of adapters, the query vector, recurrent layers and the pooler."""
    names: dict[str, tuple[str, ...]] = {}
    for layer in range(architecture.blocks) if architecture.adapters else ():
        for module, bert_modules in _ADAPTERS.items():
            names |= weight_and_bias(f"blocks.{layer}.{module}", bert_modules, inside=f"encoder.layer.{layer}.")
    names |= {"embeddings.query.weight": ("embeddings.query",)} if architecture.query_vector else {}
    for layer in range(architecture.recurrent):
        for direction in ("", "_reverse"):
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                name = f"{kind}_l{layer}{direction}"
                names[f"recurrent.lstm.{name}"] = (f"recurrent.{name}",)
    pooler = weight_and_bias("pooler", ("pooler.dense",)) if architecture.has_pooler else {}
    if architecture.head_transform:
        pooler |= weight_and_bias("pooler_norm", ("pooler.LayerNorm",))
    return names | (pooler if architecture.head_biases else without(pooler, ".bias"))


def without(names: dict[str, tuple[str, ...]], ending: str) -> dict[str, tuple[str, ...]]:
    """Return the names without those of our tensors that end so."""
    return {parameter: bert_names for parameter, bert_names in names.items() if not parameter.endswith(ending)}


def plain(name: str) -> str:
    """Return a tensor's name without the backbone's prefix, with weight and bias for TensorFlow's gamma and beta."""
    for prefix in (*PREFIXES, OWN):
        name = name.removeprefix(f"{prefix}.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


PROBLEMS: Mapping[Values, str] = {
    "classes": "single_label_classification",
    "labels": "multi_label_classification",
    "numbers": "regression",
}
"""The kind of a sequence head's outputs -> problem_type in config.json."""

RERANKERS = ("sentence_transformers", "sbert_ce_default_activation_function")
"""Config fields of the rerankers of sentence-transformers (its class CrossEncoder), of this and of older versions."""
RELEVANCE: Mapping[str, object] = {RERANKERS[0]: {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}
"""Config fields, instead of a problem_type, for a reranker: its output is a logit, made a probability by a sigmoid."""

FIRST_TOKEN: Mapping[Form, str] = {"nsp": "next sentences", "sequence": "classes", "choice": "choices"}
"""The forms of heads that read the pooled state, and what they predict, for messages."""


def other_head(head: Head, architecture: Sizes) -> str:
    """Describe how a head differs from the one of their class for an Architecture; "" if they are equal.

    In causal models their pooler reads the first token, ours the last. RoFormer has no pooler: its classifiers have a
    dense layer with the activation of the blocks, and it has no class for next sentences. Their heads are single
    layers, so a head with more layers has no class. GPT's choices read the same token as ours.
    """
    if not has_berts_names(architecture):
        return ""
    form = export_form(head.form)
    family = of_architecture(architecture)
    if architecture.has_decoder and family and form not in family.classes:
        return "such a head on an encoder-decoder"
    parameters = {name for name in head.state_dict() if not name.startswith(head.beside)}
    if form in HEADS and parameters != head_names(form, architecture).keys():
        return f"a {type(head).__name__}"
    if getattr(head, "orders", 1) > 1:
        return "pairs read in both orders"
    if isinstance(head, ApartHead):
        return "the two texts of a pair read apart"
    if isinstance(head, TextHead) and not architecture.has_decoder and (head.prefix or not architecture.causal):
        return "a prefix that its tokens see all of"
    if head.form not in FIRST_TOKEN:
        return ""
    given = "a number" if head.values in ("numbers", "relevance") else FIRST_TOKEN[head.form]
    if architecture.positions == "rotary" and not (family and head.form in family.classes):
        return "" if head.form == "nsp" else f"positions = rotary under a head for {given}"
    last = family and family.values.get("direction") == "left_to_right" and head.form in family.classes
    return f"direction = left_to_right under a head for {given}" if architecture.causal and not last else ""


def model_type(architecture: Architecture) -> str:
    """Return the model_type of an Architecture: that of the family that computes the same, else OWN."""
    family = of_architecture(architecture)
    return family.types[0] if family else OWN


def ours_alone(architecture: Sizes) -> tuple[str, ...]:
    """Return the settings of an Architecture that no model of transformers has, such as "biases = False"."""
    if not has_berts_names(architecture):
        if architecture.has_decoder and architecture.family == "pair":
            return ("these settings of an encoder and a decoder: T5 and BART have others (docs/encoder-decoders.md)",)
        return (f"family = {architecture.family}",)
    if of_architecture(architecture):
        return ()
    of_some = (
        *("embedding_norm", "first_position", "embedding", "pooling", "piece_transform", "summary"),
        *("buckets", "farthest", "distance_projections", "distance_norm", "project_first", "segment_scores"),
        *("query_vector", "piece_biases", "piece_activation", "tasks"),
    )
    left = (*FREE, *of_some, "positions", "segments", "activation", "direction")
    # Try the smallest explanation first: settings that only families vary are blamed only if the rest does not help.
    known = {setting.name: setting.default for setting in fields(Architecture) if setting.name not in left}
    if of_architecture(architecture.replace(**known)) is None:
        known |= {name: getattr(Architecture, name) for name in of_some}
        known |= {} if architecture.segments else {"segments": 2}
    return tuple(
        f"{name} = {getattr(architecture, name)}"
        for name, value in known.items()
        if getattr(architecture, name) != value
    )


def weight_and_bias(module: str, bert_modules: tuple[str, ...], *, inside: str = "") -> dict[str, tuple[str, ...]]:
    """Return the names of a module's weight and bias. `inside`: the prefix of the BERT modules."""
    parts = ("weight", "bias")
    return {f"{module}.{part}": tuple(f"{inside}{name}.{part}" for name in bert_modules) for part in parts}
