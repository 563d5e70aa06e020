"""Folders of google-research/bert: bert_config.json, vocab.txt and a TensorFlow checkpoint, read and written.

Their layers store the transpose of our matrices, as "kernel"; norms have gamma and beta. Parts without a name in their
code are stored in the same files, where this module reads them: our heads below osbert/, our settings in the config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from osbert.errors import Problems, UserError
from osbert.files import write_json, write_text
from osbert.guarded import read_object
from osbert.interop.files.weight_files import require_finite
from osbert.interop.foreign_forms import ForeignModel
from osbert.interop.huggingface import configs, names
from osbert.interop.huggingface.folders import TensorRow
from osbert.models.architecture import Architecture
from osbert.models.contract import Sizes
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.tokenizer import Tokenizer
from osbert_lab.tensorflow.bundle import INDEX, Bundle, open_bundle, write_bundle

CONFIG = "bert_config.json"
OTHER_CONFIG = "config.json"
"""Its name where a checkpoint was put up for Hugging Face's readers."""
PREFIX = "bert_model.ckpt"
STATE = "checkpoint"
"""The file in which TensorFlow notes the newest of several checkpoints."""
FIELDS = (*configs.SIZES, configs.SEGMENTS, "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob")
"""The fields of their config but initializer_range, by names that Hugging Face took over."""
ACTIVATION = "osbert_activation"
"""A config field of our own where the curve is GELU's tanh approximation. Theirs says "gelu" both for it and for the
exact curve: the published models are taken for exact ones, as everywhere, and google-research/bert approximates."""
OWN = "osbert/"
OPTIMIZER = ("/adam_m", "/adam_v", "/Adam", "/Adam_1", "global_step", "beta1_power", "beta2_power", "loss_scale")
"""How names of variables end that are of use in training alone."""

_HEADS = {
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
}
"""Hugging Face's names of head tensors -> theirs, where they do not follow from each other."""


def checkpoint(path: Path) -> Path | None:
    """Return the prefix of the TensorFlow checkpoint at a path; None if there is none.

    The path is a folder, a prefix or an index. Raises UserError if a folder has several checkpoints and no file
    "checkpoint" that names the newest, and if it has data without an index.
    """
    for prefix in (path, path.with_name(path.name.removesuffix(INDEX))) if path.name else ():  # "." has no name
        if prefix.with_name(prefix.name + INDEX).is_file():
            return prefix
    if not path.is_dir():
        return None
    prefixes = sorted(index_path.name.removesuffix(INDEX) for index_path in path.glob(f"*{INDEX}"))
    if not prefixes and (data := sorted(path.glob("*.data-*-of-*"))):
        raise UserError(f"{path} has {data[0].name}, but the index that belongs to it is missing.", code="missing-file")
    if len(prefixes) <= 1:
        return path / prefixes[0] if prefixes else None
    newest = _newest(path / STATE)
    if newest not in prefixes:
        raise UserError(
            f"{path} has several checkpoints: give the path of one, such as {path / prefixes[-1]}.",
            code="invalid-value",
        )
    return path / newest


def read_google(prefix: Path) -> ForeignModel:
    """Read a checkpoint, with the config beside it; its tensors in the types they have.

    Raises UserError when one of the files is missing or damaged, when a weight is NaN or infinite, or when the config
    asks for what is not supported.
    """
    folder = prefix.parent
    path = next((folder / name for name in (CONFIG, OTHER_CONFIG) if (folder / name).is_file()), None)
    if path is None:
        raise UserError(
            f"{folder / CONFIG} is missing: it holds the sizes of the model in {prefix.name}.", code="missing-file"
        )
    config = {"model_type": "bert", **read_object(path)}
    config["hidden_act"] = config.pop(ACTIVATION, config.get("hidden_act", "gelu"))
    architecture = configs.architecture(config, where=str(path))
    bundle = open_bundle(prefix)
    known = {tensorflow_name(name): name for name in _list_names(architecture)}
    # Heads of our own are stored below osbert/, by their own names.
    known |= {name: name.removeprefix(OWN) for name in bundle.entries if name.startswith(OWN)}
    read = {bert_name: _read(bundle, name) for name, bert_name in known.items() if name in bundle.entries}
    unused = {name: entry.shape for name, entry in bundle.entries.items() if name not in known}
    require_finite({prefix: ((name, read[bert_name]) for name, bert_name in known.items() if bert_name in read)})
    # run_classifier.py writes no architecture; a last layer is taken for its own.
    config = {"architectures": ["ForSequenceClassification"], **config}
    return ForeignModel(form=GOOGLE, config=config, tensors=read, unused=unused, folder=folder)


def write_google(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], tokenizer: AnyTokenizer, folder: Path
) -> None:
    """Write bert_config.json, vocab.txt and bert_model.ckpt of what Hugging Face's folder would hold.

    Fields of the config of our own stay. tokenizer_config.json says what a vocabulary leaves open: whether text is
    lowercased. Raises UserError when their code has no such model (`objections`).
    """
    problems = Problems(heading="google-research/bert has no such model")
    architecture = configs.architecture(config, where=str(folder))
    for objection in objections(architecture, tokenizer):
        problems.add(objection, code="not-convertible")
    problems.stop_if_any()
    assert isinstance(tokenizer, Tokenizer)
    fields = {name: config[name] for name in (*FIELDS, "initializer_range")}
    fields |= {name: value for name, value in config.items() if name.startswith("osbert_")}
    if architecture.activation == "gelu_tanh":
        fields |= {"hidden_act": "gelu", ACTIVATION: config["hidden_act"]}
    folder.mkdir(parents=True, exist_ok=True)
    named = {tensorflow_name(names.plain(name)): tensor for name, tensor in tensors.items()}
    # TensorFlow multiplies x @ kernel, torch x @ weight.T.
    turned = {name: tensor.T if name.endswith("/kernel") else tensor for name, tensor in named.items()}
    write_bundle(turned, folder / PREFIX)
    write_text(folder / "vocab.txt", "".join(f"{piece}\n" for piece in tokenizer.vocabulary))
    write_json(folder / "tokenizer_config.json", {"do_lower_case": tokenizer.lowercase})
    write_json(folder / CONFIG, fields)


def objections(architecture: Sizes, tokenizer: AnyTokenizer) -> Iterator[str]:
    """Yield each setting that their code does not support."""
    yield from names.ours_alone(architecture)
    if not isinstance(architecture, Architecture):
        return
    if (kind := names.model_type(architecture)) not in ("bert", names.OWN):
        yield f"a model of the kind {kind}"
    if architecture.positions != "learned":
        yield (
            f"positions = {architecture.positions}, where theirs has learned: --model.positions learned "
            "--model.neighbours 0 pretrains such a one"
        )
    wanted = {"direction": "both", "epsilon": 1e-12}
    for name, value in wanted.items():
        if (actual_value := getattr(architecture, name)) != value:
            yield f"{name} = {actual_value}, where theirs has {value}"
    if not isinstance(tokenizer, Tokenizer):
        yield "a tokenizer other than WordPiece without added pieces"
        return
    if not tokenizer.cjk:
        yield "a tokenizer that does not set ideographs apart"
    if tokenizer.strip_accents != tokenizer.lowercase:
        yield f"a tokenizer with lowercase = {tokenizer.lowercase} and strip_accents = {tokenizer.strip_accents}"


def tensorflow_name(name: str) -> str:
    """Return their name of a tensor from Hugging Face's name without prefix."""
    if name in _HEADS:
        return _HEADS[name]
    if name.startswith("heads."):
        return OWN + name
    *path, part = name.split(".")
    if path[-1] == "LayerNorm":
        path.append({"weight": "gamma", "bias": "beta"}[part])
    elif not path[-1].endswith("_embeddings"):
        path.append({"weight": "kernel", "bias": "bias"}[part])
    joined = "/".join(path).replace("encoder/layer/", "encoder/layer_")
    return joined if path[0] == "cls" else f"bert/{joined}"


def of_optimizer(name: str) -> bool:
    """Return whether a variable belongs to the optimizer."""
    return name.endswith(OPTIMIZER)


def _list_names(architecture: Sizes) -> Iterator[str]:
    for parts in names.backbone(architecture).values():
        yield from parts
    for head in names.HEADS.values():
        yield from head.values()


def _read(bundle: Bundle, name: str) -> Tensor:
    tensor = bundle.read(name)
    return tensor.T.contiguous() if name.endswith("/kernel") and tensor.ndim == 2 else tensor


def _newest(state: Path) -> str:
    """Return the name of the newest checkpoint, from the file "checkpoint"; "" if it names none."""
    lines = state.read_text(encoding="utf-8", errors="replace").splitlines() if state.is_file() else []
    paths = [line.partition(":")[2].strip().strip('"') for line in lines if line.startswith("model_checkpoint_path:")]
    return paths[0].replace("\\", "/").rpartition("/")[2] if paths else ""


class GoogleForm:
    """The form of google-research/bert's folders, for `osbert convert`."""

    name, title = "google", "TensorFlow's"
    content = f"TensorFlow checkpoint such as {PREFIX}.index"
    find = staticmethod(checkpoint)
    read = staticmethod(read_google)
    write = staticmethod(write_google)
    is_training_state = staticmethod(of_optimizer)

    def rename(self, row: TensorRow) -> TensorRow:
        """Return a row with the tensor's name and shape in a TensorFlow checkpoint, unless it already has them."""
        if "/" in row.name or "." not in row.name:
            return row
        name = tensorflow_name(row.name)
        return replace(row, name=name, shape=row.shape[::-1] if name.endswith("/kernel") else row.shape)


GOOGLE = GoogleForm()
"""The form, for the entry point."""
