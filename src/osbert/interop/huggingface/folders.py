"""Hugging Face folders: config.json and weights -> a backbone and its heads, and back.

BERT is the same on both sides. A rotary encoder is written as RoFormer, which has no pooler, no next-sentence head and
a different classifier. A causal encoder is written as a decoder, which has the same states; but their pooler and
classifier read the first token, ours the last. Parts that their model cannot hold (such as a second classifier) are
stored in the same file, a head under "heads.<name>.", which this module reads and transformers ignores. If transformers
would create such a head with random weights, or has no model for the encoder, the model_type is "osbert", which it
rejects.

A `Report` lists the tensors of a folder: status, whether it is expected, and a remark for each.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from osbert.errors import Problems, UserError
from osbert.files import write_json
from osbert.interop.files.weight_files import SAFE, write_tensors
from osbert.interop.huggingface import configs, names
from osbert.interop.huggingface.family import of_architecture, of_type
from osbert.interop.huggingface.names import PIECES
from osbert.models.architecture import Architecture
from osbert.models.contract import Backbone, Head, Learner, Sizes
from osbert.models.initialisation import initialise, with_memory
from osbert.text.file_tokenizer import AnyTokenizer, starting_piece

ROUND = (8, 16, 32, 64, 128)
"""Tables of pieces are often padded to multiples of these numbers, for speed; their last rows belong to no piece."""
MAXIMUM_PADDING = 1 / 8
"""Largest fraction of a table that such rows may have."""

Status = Literal["loaded", "new", "unused"]


@dataclass(frozen=True, kw_only=True)
class TensorRow:
    """The status of one tensor, named as in the file without the backbone's prefix.

    "new": not in the file, newly initialised; "unused": in the file, but not needed. `expected` is False if the user
    should check it; `remark` is the reason.
    """

    name: str
    shape: tuple[int, ...]
    status: Status
    expected: bool = True
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The rows of all tensors that were loaded, newly initialised, or unused."""

    rows: tuple[TensorRow, ...]

    @property
    def problems(self) -> tuple[TensorRow, ...]:
        """Return the rows that are not as expected."""
        return tuple(row for row in self.rows if not row.expected)

    @property
    def new_weights(self) -> tuple[str, ...]:
        """A line for the user for each newly initialised tensor: for training, as nothing else computes with one."""
        return tuple(f"{row.name} is newly initialised: {row.remark}" for row in self.rows if row.status == "new")

    @property
    def remarks(self) -> tuple[str, ...]:
        """A line for the user for each tensor of the file that is not as expected."""
        used, strange = [], []
        for row in self.problems:
            if row.status == "loaded":
                used.append(f"{row.name} {row.shape}: {row.remark}")
            elif row.status == "unused":
                strange.append(f"{row.name} {row.shape} is not used: {row.remark}")
        more = [f"... and {len(strange) - 5:,} more that are not used"] if len(strange) > 5 else []
        return (*used, *strange[:5], *more)

    def select_names(self, status: Status) -> tuple[str, ...]:
        """Return the names of the rows with a status."""
        return tuple(row.name for row in self.rows if row.status == status)

    def require_complete(self, where: str, *, but: str = "") -> None:
        """Raise UserError if anything had to be made new: `where`, the folder, is then no finished model.

        `but`: how the names of tensors begin that nothing reads, "" for none.
        """
        problems = Problems(heading=f"{where} lacks weights of a finished model")
        for row in self.rows:
            if row.status == "new" and not (but and row.name.startswith(but)):
                problems.add(f"{row.name} {row.shape}{f': {row.remark}' if row.remark else ''}", code="damaged-file")
        problems.stop_if_any()


def of_pieces(row: TensorRow, pieces: int) -> TensorRow:
    """Return the report row of the piece embeddings, with a remark if the table has more rows than `pieces`.

    Rows that pad the table to a round number are expected. Report rows of other tensors are returned unchanged.
    """
    if row.name != PIECES or row.shape[0] == pieces:
        return row
    spare = row.shape[0] - pieces
    further = f"the last {spare:,} rows belong to no piece"
    if spare <= MAXIMUM_PADDING * row.shape[0] and row.shape[0] in {
        -(-pieces // multiple) * multiple for multiple in ROUND
    }:
        return replace(row, remark=f"{further}: made a round number")
    remark = f"{further}: the vocabulary has {pieces:,}. Is it the one that the model was trained with?"
    return replace(row, expected=False, remark=remark)


WRITES = "osbert_writes"
"""A config field of our own, for a head trained to generate from a source: the way it does."""

FORCED_END = "forced_eos_token_id"
"""BART's config field with the piece that transformers appends to a text of the greatest length."""

UNKNOWN, UNLEARNT = "unknown", "holds nothing learned"
"""The remarks on tensors that no part of the model uses."""


def assemble(architecture: Sizes, tensors: Mapping[str, Tensor], *, where: Path) -> tuple[Backbone, Report]:
    """Return a backbone filled with `tensors`, named as by `normalize_names`, and a report on every tensor.

    Only the pooler may be missing (models trained on masked pieces alone have none): it is newly initialised and
    reported as new. Raises UserError that lists the missing and misshapen weights of the folder `where`.
    """
    try:
        backbone = architecture.empty()
    except (ValueError, RuntimeError) as error:  # RuntimeError: torch rejects sizes whose product overflows
        raise UserError(f"{where}: {error}.", code="damaged-file") from error
    state, rows = _backbone_state(backbone, tensors, where=where)
    # Modules without tensors in the file: only a pooler, all else is required.
    for fresh in dict.fromkeys(name.rpartition(".")[0] for name in backbone.state_dict() if name not in state):
        initialise(with_memory(backbone.get_submodule(fresh)), architecture.deviation)
    backbone.load_state_dict(state, strict=False, assign=True)
    return backbone, Report(rows=tuple(rows + _leftovers(backbone, tensors, {row.name for row in rows})))


def fill(tensors: Mapping[str, Tensor], learner: Learner, *, where: Path) -> Report:
    """Fill the backbone and heads of a learner with `tensors`, named as by `normalize_names`. Raises UserError as
    `assemble`.

    A head whose tensors are missing or have other shapes (another number of labels) keeps its weights and is reported
    as new; `Report.require_complete` makes that an error.
    """
    state, rows = _backbone_state(learner.backbone, tensors, where=where)
    learner.backbone.load_state_dict(state, strict=False)
    return Report(rows=tuple(rows + fill_heads(tensors, learner)))


def write_model(
    learner: Learner,
    folder: str | Path,
    *,
    labels: Sequence[str] | None = None,
    center: float = 0.0,
    scale: float = 1.0,
    tokenizer: AnyTokenizer | None = None,
) -> None:
    """Write config.json and model.safetensors so that Hugging Face's AutoModel classes open them with equal outputs.

    `labels` name the outputs of the classification head, in order; None for Hugging Face's own LABEL_0, LABEL_1, ...
    The published last layer outputs `center` + `scale` * y for the head's output y: a regression head's unit, or for
    classes and choices a temperature of 1 / `scale`. The head's own weights are then stored as well. `tokenizer`: the
    folder's, whose special pieces an encoder-decoder's config names; None: those of its family. Each file is replaced
    atomically. Tied weights are stored once, as in Hugging Face's files.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config, tensors = to_huggingface(learner, labels=labels, center=center, scale=scale, tokenizer=tokenizer)
    write_tensors(tensors, folder / SAFE)
    write_json(folder / "config.json", config)


def to_huggingface(
    learner: Learner,
    *,
    labels: Sequence[str] | None = None,
    center: float = 0.0,
    scale: float = 1.0,
    pooler: bool = True,
    tokenizer: AnyTokenizer | None = None,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the fields of config.json and the tensors that `write_model` writes.

    Without `pooler` the weights of the pooler are left out.
    """
    closed, published = bool(_other_heads(learner)), _export_names(learner)
    heads = _head_config(learner, published, labels, closed=closed)
    config = configs.config(learner.backbone.architecture, heads, closed=closed)
    if tokenizer is not None and learner.backbone.architecture.has_decoder and config["model_type"] != names.OWN:
        config |= text_ids(tokenizer)
        config |= {FORCED_END: config["eos_token_id"]} if FORCED_END in config else {}
    prefix = f"{config['model_type']}." if learner.heads else ""
    tensors: dict[str, Tensor] = {}
    in_units = (center, scale) != (0, 1)
    state = learner.backbone.state_dict()
    for parameter, bert_names in names.backbone(learner.backbone.architecture).items():
        if bert_names[0].startswith("pooler.") and not pooler:
            continue
        # Our stacked matrices are split into theirs.
        tensors |= {
            f"{prefix}{name}": part
            for name, part in zip(bert_names, state[parameter].chunk(len(bert_names)), strict=True)
        }
    sizes, family = learner.backbone.architecture, of_type(config["model_type"])
    if family and isinstance(sizes, Architecture):
        tensors |= {f"{prefix}{name}": table for name, table in family.tables(sizes).items()}
    for name, head in _heads(learner):
        for parameter, tensor in head.state_dict().items():
            osbert_name = f"heads.{name}.{parameter}"
            if head.form in ("sequence", "choice") and in_units and parameter in published[name]:
                tensors[osbert_name] = tensor
                # scale * (W x + b) + center, written as one linear layer.
                tensor = tensor * scale + (center if parameter == "linear.bias" else 0)
            tensors[published[name].get(parameter, osbert_name)] = tensor
    if family and isinstance(sizes, Architecture):
        forms = {names.export_form(head.form) for name, head in _heads(learner) if published[name]}
        bare = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        tensors = family.to_family_tensors(bare, forms, prefix=bool(prefix), width=sizes.key_width)
    return config, tensors


def osbert_only_reason(architecture: Sizes, learner: Learner | None = None) -> str:
    """Return a sentence for the user if only osbert can open the written model; "" if transformers can, too.

    `learner`: its heads are taken into account.
    """
    reasons = (*names.ours_alone(architecture), *(_other_heads(learner) if learner else ()))
    if not reasons:
        return ""
    return f"This model opens in osbert, not in transformers, which has no model with {' and '.join(reasons)}."


def normalize_names(tensors: Mapping[str, Tensor], *, tied: bool = True) -> dict[str, Tensor]:
    """Return the tensors of a weight file by current names, without the backbone's prefix.

    `tied`: whether the language-model head shares the piece embeddings.
    """
    if [*tensors] == ["embeddings"]:  # of static vectors, by model2vec's name
        return {"table.weight": tensors["embeddings"]}
    state = {names.plain(name): tensor for name, tensor in tensors.items()}
    if names.DECODER_BIAS in state:  # some writers keep the tied bias under this name alone
        state.setdefault(names.BIAS, state[names.DECODER_BIAS])
        del state[names.DECODER_BIAS]
    if tied and names.DECODER in state:  # OpenAIGPTDoubleHeadsModel is saved with the tied table under this name alone
        state.setdefault(names.PIECES, state[names.DECODER])
    return state


def _backbone_state(
    backbone: Backbone, tensors: Mapping[str, Tensor], *, where: Path
) -> tuple[dict[str, Tensor], list[TensorRow]]:
    """Return the backbone's state from `tensors`, and report rows. Raises UserError that lists all misfits."""
    problems = Problems(heading=f"The weights in {where} do not fit its config.json")
    model_state = backbone.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in model_state.items()}
    state: dict[str, Tensor] = {}
    rows: list[TensorRow] = []
    for parameter, bert_names in names.backbone(backbone.architecture).items():
        # Each of their tensors has an equal part of the rows of ours.
        shape = (shapes[parameter][0] // len(bert_names), *shapes[parameter][1:])
        if bert_names[0].startswith("pooler.") and bert_names[0] not in tensors:
            rows.append(TensorRow(name=bert_names[0], shape=shape, status="new", remark="the file has no pooler"))
            continue
        real = model_state[parameter].is_floating_point()
        parts: list[Tensor] = []
        for name in bert_names:
            if misfit := _misfit(name, tensors, shape, real=real):
                family = of_architecture(backbone.architecture)
                problems.add(misfit.replace(name, family.tensor_name(name) if family else name, 1), code="damaged-file")
                continue
            rows.append(_describe_loaded(name, tensors[name]))
            parts.append(tensors[name].to(model_state[parameter].dtype))
        if len(parts) == len(bert_names):
            state[parameter] = torch.cat(parts)
    problems.stop_if_any()
    return state, rows


def _misfit(name: str, tensors: Mapping[str, Tensor], shape: tuple[int, ...], *, real: bool = True) -> str:
    """Describe why a tensor cannot be used: missing, wrong shape, or not `real` (else integers); "" if it fits."""
    if name not in tensors:
        return f"{name} {shape} is missing."
    tensor = tensors[name]
    if tuple(tensor.shape) != shape:
        return f"{name} has shape {tuple(tensor.shape)}, but must have {shape}."
    if tensor.is_floating_point() == real:
        return ""
    return f"{name} holds {tensor.dtype}, not {'real numbers' if real else 'integers'}."


def _describe_loaded(name: str, tensor: Tensor) -> TensorRow:
    remark = "" if tensor.dtype == torch.float32 or not tensor.is_floating_point() else f"{tensor.dtype} made float32"
    return TensorRow(name=name, shape=tuple(tensor.shape), status="loaded", remark=remark)


def _leftovers(backbone: Backbone, tensors: Mapping[str, Tensor], used: Container[str]) -> list[TensorRow]:
    """Return a report row for each tensor that the backbone does not use; `used`: the names of those it does."""
    rows = []
    for name in tensors:
        if name in used:
            continue
        row = _describe_unused(name, tensors, tied=backbone.architecture.tied)
        # Families are compared only if there is a tensor that may be theirs: it takes an import of each.
        if row.remark == UNKNOWN and (family := of_architecture(backbone.architecture)):
            if name.endswith(family.buffers):
                row = replace(row, expected=True, remark=UNLEARNT)
            else:
                row = replace(row, name=family.tensor_name(name))
        rows.append(row)
    return rows


def _describe_unused(name: str, tensors: Mapping[str, Tensor], *, tied: bool = True) -> TensorRow:
    pieces, expected, remark = tensors.get(names.PIECES), False, UNKNOWN
    if tied and name == names.DECODER and (pieces is None or not torch.equal(tensors[name], pieces)):
        remark = "differs from the piece embeddings, to which heads are tied here, whatever tie_word_embeddings is"
    elif name == names.SCORES_BIAS and tensors[name].any():
        remark = "is a bias of the scores of pieces, which no head here has"
    elif name.endswith(names.BUFFERS):
        expected, remark = True, UNLEARNT
    elif name.startswith(names.HEAD_PREFIXES):
        expected, remark = True, "a head's"
    return TensorRow(name=name, shape=tuple(tensors[name].shape), status="unused", expected=expected, remark=remark)


def _heads(learner: Learner) -> Iterator[tuple[str, Head]]:
    for name, head in learner.heads.items():
        if not isinstance(head, Head):
            raise TypeError(f"the learner's head '{name}' is no Head but a {type(head).__name__}")
        yield name, head


def fill_heads(tensors: Mapping[str, Tensor], learner: Learner) -> list[TensorRow]:
    """Fill the learner's heads from `tensors`, named as by `normalize_names`; return a report row for each of their
    tensors.

    A tensor of a head is looked up under "heads.<name>." first, then under the published name of its form.
    """
    rows: list[TensorRow] = []
    for name, head in _heads(learner):
        state: dict[str, Tensor] = {}
        head_rows: list[TensorRow] = []
        published = names.head_names(head.form, learner.backbone.architecture)
        for parameter, tensor in head.state_dict().items():
            osbert_name = f"heads.{name}.{parameter}"
            tensor_name = osbert_name if osbert_name in tensors else published.get(parameter, osbert_name)
            if misfit := _misfit(tensor_name, tensors, tuple(tensor.shape)):
                remark = f"the head '{name}' cannot be filled: {misfit}"
                head_rows.append(TensorRow(name=tensor_name, shape=tuple(tensor.shape), status="new", remark=remark))
            else:
                head_rows.append(_describe_loaded(tensor_name, tensors[tensor_name]))
                state[parameter] = tensors[tensor_name].float()
        rows += head_rows
        # All or nothing: a half-filled head would be worse than a new one.
        if all(row.status == "loaded" for row in head_rows):
            head.load_state_dict(state)
        decoder = head.form == "mlm" and learner.backbone.architecture.tied and names.DECODER in tensors
        if decoder and not (row := _describe_unused(names.DECODER, tensors)).expected:
            rows.append(row)
    return rows


def _other_heads(learner: Learner) -> list[str]:
    """Describe each head that transformers would not rebuild with the same outputs."""
    sizes, frozen = learner.backbone.architecture, "a head on features of a frozen encoder"
    descriptions = {frozen if head.frozen else names.other_head(head, sizes) for _, head in _heads(learner)}
    return sorted(descriptions - {""})


def _export_names(learner: Learner) -> dict[str, Mapping[str, str]]:
    """Return the published names of each head's parameters; none if their model lacks such a head, or it is taken."""
    sizes = learner.backbone.architecture
    family = of_architecture(sizes)
    taken: set[str] = set()
    pools: set[str] = set()
    published: dict[str, Mapping[str, str]] = {}
    for name, head in _heads(learner):
        none = head.form in ("nsp", "order", "replaced") and (
            head.form not in family.classes
            if family
            else head.form != "nsp" or (isinstance(sizes, Architecture) and sizes.positions == "rotary")
        )
        name_map = {} if none or names.other_head(head, sizes) else names.head_names(head.form, sizes)
        # Two heads may share the pooler, but not names with it where a family has the same for several heads.
        form = (names.export_form(head.form),)
        family_names = {family.tensor_name(bert_name, form) if family else bert_name for bert_name in name_map.values()}
        pool = {family.tensor_name("pooler.dense.weight", form)} if family and head.form in names.FIRST_TOKEN else set()
        free = taken.isdisjoint(family_names | pool) and pools.isdisjoint(family_names)
        published[name] = name_map if free else {}
        if free:
            taken |= family_names
            pools |= pool
    return published


def _head_config(
    learner: Learner, published: Mapping[str, Mapping[str, str]], labels: Sequence[str] | None, *, closed: bool
) -> dict[str, Any]:
    """Return the config.json fields about the heads: class, labels, kind of problem.

    `published`: the names of `_export_names`. `closed`: whether transformers would not rebuild all heads.
    """
    exported_heads = (head for name, head in _heads(learner) if published[name] or not head.state_dict())
    heads = {names.export_form(head.form): head for head in exported_heads}
    architecture = learner.backbone.architecture
    kind = "OsbertModel"
    if not closed and isinstance(architecture, Architecture) and (family := of_architecture(architecture)):
        kind = family.class_name(heads, causal=architecture.direction == "left_to_right")
    fields: dict[str, Any] = {"architectures": [kind]}
    if head := heads.get("sequence") or heads.get("tokens"):
        count = len(head.get_parameter("linear.weight"))
        labels = labels or [f"LABEL_{index}" for index in range(count)]
        if len(labels) != count:
            raise ValueError(f"{len(labels)} label names for {count} outputs")
        if head.form == "sequence":
            problem = names.PROBLEMS.get(head.values)
            fields |= {"problem_type": problem} if problem else names.RELEVANCE
    if writes := next(filter(None, (getattr(head, "writes", None) for _, head in _heads(learner))), None):
        fields[WRITES] = writes
    if dropout := getattr(head or heads.get("choice"), "dropout", None):
        fields["classifier_dropout"] = dropout.probability
    if labels:
        fields["id2label"] = {str(index): label for index, label in enumerate(labels)}
        fields["label2id"] = {label: index for index, label in enumerate(labels)}
    return fields


def text_ids(tokenizer: AnyTokenizer) -> dict[str, int]:
    """Return the config fields with the pieces that start and end a decoder's texts, as trained here.

    transformers' `generate` and its shift of labels read these fields instead of the tokenizer.
    """
    form = tokenizer.form
    try:
        fields = {"pad_token_id": tokenizer.pad, "decoder_start_token_id": starting_piece(tokenizer)}
    except UserError:  # without a padding piece it cannot have trained a decoder
        return {}
    fields |= {"bos_token_id": form.before[0]} if form.before else {}
    return fields if form.end is None else fields | {"eos_token_id": form.end}


def text_id_remarks(config: Mapping[str, Any], tokenizer: AnyTokenizer) -> Iterator[str]:
    """Yield a remark for each piece at the start or end of a decoder's texts that a config names otherwise."""
    tokenizer_ids = text_ids(tokenizer)
    for name, what in (("decoder_start_token_id", "start"), ("eos_token_id", "end")):
        file_id, token_id = config.get(name), tokenizer_ids.get(name)
        if file_id is not None and token_id is not None and file_id != token_id:
            piece = tokenizer.tokens([token_id])[0]
            yield (
                f"config.json has {file_id} as the piece at the {what} of generated texts ({name}), the tokenizer "
                f"{token_id} ({piece}), which osbert uses. A model trained with the former may generate poor texts."
            )
