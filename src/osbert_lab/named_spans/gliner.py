"""Folders of GLiNER (urchade/gliner_* and others): gliner_config.json and weights, opened for `osbert convert`.

Models that score spans in one pass over types and text are read (span_mode markerV0), with encoders of the families
that osbert reads. Their bi-encoders, models of tokens, of relations and of generated labels, and GLiNER2 are refused:
each has another head, and GLiNER2 another prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from osbert.errors import Problems, UserError
from osbert.guarded import read_object
from osbert.interop.files.weight_files import read_tensors
from osbert.interop.foreign_forms import ForeignModel
from osbert.interop.huggingface.family import of_type
from osbert.interop.huggingface.folders import TensorRow
from osbert.interop.opening import CAREFUL
from osbert.interop.task_files import FIELD
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.text.file_tokenizer import AnyTokenizer, piece_ids

CONFIG = "gliner_config.json"
ENCODER = "token_rep_layer.bert_layer.model."
"""Prefix of the encoder's tensors."""
HEAD = "heads.spans."
_HEAD_MODULES = {
    "token_rep_layer.projection.": "project.",
    "rnn.lstm.": "recurrent.",
    "span_rep_layer.span_rep_layer.project_start.": "start.",
    "span_rep_layer.span_rep_layer.project_end.": "end.",
    "span_rep_layer.span_rep_layer.out_project.": "span.",
    "prompt_rep_layer.": "query.",
}
_LAYERS = {"0": "inner", "3": "outer"}
"""Their names of modules and of the layers of an MLP -> ours."""
WIDTH, LAYERS, LENGTH = 12, 1, 384
"""Their defaults of max_width, num_rnn_layers and max_len."""
REQUIRED: Mapping[str, tuple[Any, ...]] = {
    "span_mode": ("markerV0",),
    "subtoken_pooling": ("first", None),
    "words_splitter_type": ("whitespace", None),
    "embed_ent_token": (True, None),
    "num_rnn_layers": (0, 1, None),
    **dict.fromkeys(("fuse_layers", "represent_spans", "precomputed_prompts_mode"), (False, None)),
    **dict.fromkeys(("post_fusion_schema", "span_encoder_config"), ("", None)),
    **dict.fromkeys(("labels_encoder", "labels_decoder", "relations_layer", "triples_layer"), ("", None)),
}
"""Fields of their config, with the values that are supported; None for a field that is not there."""
DEBERTA: Mapping[str, Any] = {
    "model_type": "deberta-v2",
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "max_relative_positions": -1,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
}
"""What all DeBERTa-v3 encoders have in common; early folders name the encoder alone."""


def find_gliner(path: Path) -> Path | None:
    """Return the config of a GLiNER folder, which `path` may name; None if there is none."""
    config = path / CONFIG if path.is_dir() else path
    return config if config.name == CONFIG and config.is_file() else None


def read_gliner(path: Path) -> ForeignModel:
    """Read the folder of a config as a model with the task `spans`.

    Raises UserError if a file is missing or damaged, and that lists all fields with values that are not supported.
    """
    folder, config = path.parent, read_object(path)
    problems = Problems(heading=f"{path} asks for what osbert does not have")
    for message in objections(config):
        problems.add(message, code="unsupported-model")
    problems.stop_if_any()
    stored = read_tensors(folder)
    encoder_tensors = {name.removeprefix(ENCODER): value for name, value in stored.items() if name.startswith(ENCODER)}
    encoder = read_encoder_config(config, encoder_tensors, where=str(path))
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "spm.model", "spiece.model")):
        raise UserError(
            f"{folder} has no tokenizer: that of {config.get('model_name')} belongs to it. Put its tokenizer files "
            "(tokenizer.json, or spm.model, and tokenizer_config.json) into the folder.",
            code="missing-file",
        )
    family = of_type(encoder.get("model_type"))
    tensors = family.canonical(encoder_tensors, encoder) if family else encoder_tensors
    unused: dict[str, tuple[int, ...]] = {}
    for name, tensor in stored.items():
        if known := head_name(name):
            tensors[known] = tensor
        elif not name.startswith(ENCODER):
            unused[name] = tuple(tensor.shape)
    settings = read_settings(config, read_any_tokenizer(folder, CAREFUL.again))
    field = {"name": "spans", "settings": settings}
    return ForeignModel(form=GLINER, config={**encoder, FIELD: field}, tensors=tensors, unused=unused, folder=folder)


def objections(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield each field of a config with a value that is not supported."""
    for name, values in REQUIRED.items():
        if (value := config.get(name)) not in values:
            wanted = " or ".join(repr(supported) for supported in values if supported is not None)
            yield f"{name} is {value!r}; only {wanted} is supported."
    for name in ("max_width", "hidden_size", "class_token_index"):
        value = config.get(name, WIDTH if name == "max_width" else None)
        if type(value) is not int or value < 1:
            yield f"{name} is {value!r}; it must be a whole number above 0."


def read_encoder_config(config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, where: str) -> dict[str, Any]:
    """Return the config of the encoder, by Hugging Face's names; of DeBERTa-v3 also from the shapes of its tensors.

    Raises UserError if it is neither in the file nor known.
    """
    if isinstance(encoder := config.get("encoder_config"), Mapping):
        return {name: value for name, value in encoder.items() if name not in ("architectures", "id2label", "label2id")}
    pieces = tensors.get("embeddings.word_embeddings.weight")
    inner = tensors.get("encoder.layer.0.intermediate.dense.weight")
    if "deberta-v3" not in str(config.get("model_name")) or pieces is None or inner is None:
        raise UserError(
            f"{where} has no encoder_config. Add the content of config.json of {config.get('model_name')} under this "
            "name.",
            code="unsupported-model",
        )
    layers = {name.split(".")[2] for name in tensors if name.startswith("encoder.layer.")}
    return {
        **DEBERTA,
        "vocab_size": len(pieces),
        "hidden_size": pieces.shape[1],
        "num_hidden_layers": len(layers),
        "num_attention_heads": pieces.shape[1] // 64,
        "intermediate_size": len(inner),
    }


def read_settings(config: Mapping[str, Any], tokenizer: AnyTokenizer) -> dict[str, Any]:
    """Return the settings of the task `spans`; markers that the tokenizer lacks have the ids that the package gives."""
    ids = piece_ids(tokenizer)
    entity = ids.get(config.get("ent_token", "<<ENT>>"), config["class_token_index"])
    return {
        "width": config.get("max_width", WIDTH),
        "hidden": config["hidden_size"],
        "recurrent": bool(config.get("num_rnn_layers", LAYERS)),
        "entity_id": entity,
        "separator_id": ids.get(config.get("sep_token", "<<SEP>>"), entity + 1),
        "threshold": 0.5,
        "split": "hyphenated",
        "pooled": False,
        "spaced": False,
        "most_types": 0,
        "length": max(512, config.get("max_len") or LENGTH),
    }


def head_name(name: str) -> str:
    """Return our name of a tensor of their head, "" for others.

    >>> head_name("prompt_rep_layer.3.weight")
    'heads.spans.query.outer.weight'
    """
    for begin, module in _HEAD_MODULES.items():
        if name.startswith(begin):
            layer, dot, rest = name.removeprefix(begin).partition(".")
            return f"{HEAD}{module}{_LAYERS.get(layer, layer)}{dot}{rest}"
    return ""


class GlinerForm:
    """The form of GLiNER's folders, for `osbert convert`. It is read, not written."""

    name, title = "gliner", "GLiNER's"
    content = f"GLiNER model with {CONFIG}"
    find = staticmethod(find_gliner)
    read = staticmethod(read_gliner)

    def write(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], tokenizer: AnyTokenizer, folder: Path
    ) -> None:
        """Raise UserError: other forms are written."""
        raise UserError(
            "GLiNER's folders are read, not written. Keep the run, or write --to huggingface, which osbert reads.",
            code="not-convertible",
        )

    def rename(self, row: TensorRow) -> TensorRow:
        """Return a row with their name of a tensor of the head; those of the encoder keep the family's."""
        for begin, module in _HEAD_MODULES.items():
            if row.name.startswith(HEAD + module):
                rest = row.name.removeprefix(HEAD + module)
                layer = {layer: number for number, layer in _LAYERS.items()}.get(rest.partition(".")[0])
                return replace(row, name=begin + (f"{layer}.{rest.partition('.')[2]}" if layer else rest))
        return row

    def is_training_state(self, name: str) -> bool:
        """Return False: the folders hold no state of training."""
        return False


GLINER = GlinerForm()
"""The form, for the entry point."""
