"""Folder: opens a model with its config, tokenizer, backbone, heads, task and sentence settings.

A folder is a run of osbert, a Hugging Face model (also of sentence-transformers), an export, or a tuned part of another
model. All code that opens a model uses this module, so a model has the same outputs everywhere.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from osbert import components
from osbert.errors import UserError
from osbert.guarded import read_if_there, read_object, require_regular
from osbert.interop import sentence_files
from osbert.interop.files.weight_files import ADAPTER, MERGING, ONNX, fingerprint
from osbert.interop.foreign_forms import ForeignModel
from osbert.interop.hub import ModelLocation, locate
from osbert.interop.huggingface import configs, folders, names
from osbert.interop.huggingface.folders import Report
from osbert.interop.opening import CAREFUL, Opening
from osbert.interop.sentence_files import SentenceModel
from osbert.interop.task_files import read_task
from osbert.interop.tokenizers import CONFIG, read_any_tokenizer
from osbert.interop.tuned_files import has_weights, read_whole
from osbert.models.contract import Backbone, Head, Learner, Sizes
from osbert.models.forms import Writing
from osbert.models.heads.predictions import MaskedLanguageHead, SequenceHead
from osbert.models.random_numbers import drawing
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.training.run_folder import FACTS, RECIPE, RunFolder

if TYPE_CHECKING:
    from osbert.tasks import Task

COMPANIONS = ("generator",)
"""Subfolders for models that pretraining trains beside the encoder (ELECTRA)."""
GENERATION = "generation_config.json"
"""The file with a model's settings of text generation."""


def open_folder(
    name: str | os.PathLike[str], opening: Opening = CAREFUL, *, watch: Callable[[Any], None] = lambda event: None
) -> Folder:
    """Return the folder of a model, by its path or its name (`hub.locate`, which calls `watch` as it downloads).

    Nothing is read yet. A property raises UserError if its files cannot be used.

    >>> folder = open_folder("encoder")
    >>> folder.path.name, folder.commit
    ('encoder', '')
    """
    return Folder(locate(name, watch=watch), opening)


class Folder:
    """A folder that holds a model. Each part is read when it is first used, and only once.

    `name` and `commit`: those of a model from a hub; the path and "" for a local folder. `foreign`: the content of a
    folder in another form (foreign_forms.py), whose `path` then holds the tokenizer.

    The hashes of a finished run are compared before the first part is read. Every part is made once, so a caller that
    trains the backbone does not share the Folder.
    """

    def __init__(
        self, location: ModelLocation, opening: Opening = CAREFUL, *, foreign: ForeignModel | None = None
    ) -> None:
        """Wrap a folder without reading it."""
        self.location = location
        self.path = location.path
        self.name = location.name or str(location.path)
        self.commit = location.commit
        self.opening = opening
        self.foreign = foreign

    def __str__(self) -> str:
        return str(self.path)

    @property
    def form(self) -> str:
        """The form of the folder: "osbert", "huggingface" or a foreign one. An export has that of its source."""
        if self.foreign:
            return self.foreign.form.name
        return "osbert" if any((self.path / name).is_file() for name in (RECIPE, FACTS)) else "huggingface"

    @property
    def is_exported(self) -> bool:
        """Return whether the folder has an ONNX file instead of weights."""
        return (self.path / ONNX).is_file() and not has_weights(self.path)

    def require_config(self) -> Path:
        """Return the path of config.json. Raises UserError with advice if there is none."""
        folder, path = self.path, self.path / "config.json"
        if path.is_file():
            return path
        if list(folder.glob("*.ckpt*.index")):
            raise UserError(
                f"{folder} holds a TensorFlow checkpoint. Convert it: osbert convert {folder} NEW --to osbert",
                code="not-a-model",
            )
        if not folder.exists():
            raise UserError(f"{folder} does not exist.", code="missing-file")
        RunFolder(folder).refuse_unended()
        raise UserError(
            f"{folder} holds no model: it has no config.json, as a finished run or a Hugging Face folder has.",
            code="not-a-model",
        )

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The fields of config.json, by Hugging Face's names. Raises UserError as `require_config`."""
        if self.foreign:
            return self.foreign.config
        return read_object(self._verified / "config.json")

    @cached_property
    def architecture(self) -> Sizes:
        """The settings of the backbone. Raises UserError if the config has unsupported values."""
        return configs.architecture(self.config, where=str(self.path if self.foreign else self.path / "config.json"))

    @cached_property
    def tokenizer(self) -> AnyTokenizer:
        """The tokenizer. Raises UserError also if it has more pieces than the model's vocabulary."""
        known = self.architecture.vocabulary
        tokenizer = read_any_tokenizer(self._verified, Opening(verify=False))
        if len(tokenizer) > known:
            raise UserError(
                f"{self}: the tokenizer has {len(tokenizer):,} pieces, but the model was trained with {known:,}. "
                "Use the tokenizer of this model.",
                code="mismatched-tokenizer",
            )
        return tokenizer

    @cached_property
    def task(self) -> Task | None:
        """The task that a run was fine-tuned for, or None; see `task_files.read_task`."""
        return read_task(self._verified, self.opening)

    @cached_property
    def sentences(self) -> SentenceModel | None:
        """The prompts, pooling, length and so on of a sentence model; None for other models.

        Raises UserError if its files are damaged, or ask for something that osbert lacks.
        """
        if self.foreign:
            return sentence_files.of_field(self.config, where=str(self))
        return sentence_files.read_sentence_model(self._verified, self.config)

    @property
    def matryoshka(self) -> Sequence[int]:
        """The numbers of dimensions to which vectors may be cut, as the model was trained for; empty for none."""
        return sentence_files.matryoshka(self.config)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All weights by Hugging Face's names without prefix, including those of a base model."""
        return folders.normalize_names(self._stored, tied=self.architecture.tied)

    @property
    def backbone(self) -> Backbone:
        """Return the backbone in float32 on the CPU, in training mode.

        Raises UserError when weights are missing, misshapen or damaged. Only the pooler may be missing: a fresh one is
        drawn from torch's global generator.
        """
        return self._assembled[0]

    @cached_property
    def heads(self) -> dict[str, Head]:
        """The heads by name: the task's, or without a task those of pretraining whose weights are complete.

        Raises UserError if a weight of the task's head, or of the pooler that it reads, is missing.
        """
        if self.task:
            with drawing():
                heads: dict[str, Head] = {self.task.name: self.task.head(self.backbone)}
            self.report.require_complete(str(self), but="pooler." if self.task.per_token else "")
            filled = folders.fill_heads(self.tensors, Learner(self.backbone, heads))
            Report(rows=tuple(filled)).require_complete(str(self))
            return heads
        return self.defer_heads()()[0]

    def defer_heads(self) -> Callable[[], tuple[dict[str, Head], dict[str, str]]]:
        """Return a function that makes the heads of pretraining (`read_pretraining_heads`), also after `release`.

        It holds the backbone, and of the weights those of heads alone.
        """
        tensors = {name: tensor for name, tensor in self.tensors.items() if name.startswith(names.HEAD_PREFIXES)}
        if self.architecture.tied and names.DECODER in tensors:
            # A second copy of the table of pieces. If they differ, the head gets a remark, for which both are needed.
            pieces = self.tensors.get(names.PIECES)
            if pieces is not None and torch.equal(pieces, tensors[names.DECODER]):
                del tensors[names.DECODER]
            elif pieces is not None:
                tensors[names.PIECES] = pieces
        if getattr(self.architecture, "query_vector", False) and _has_language_head(tensors, self.architecture):
            self.backbone.read_as_query(self.tokenizer.mask)
        return partial(read_pretraining_heads, self.backbone, tensors, writes=self.writes)

    @property
    def writes(self) -> Writing | None:
        """How the head of pretraining generates text (`Writing`); None if it does not."""
        value = self.config.get(folders.WRITES)
        if value not in (None, *get_args(Writing)):
            raise UserError(
                f"{self}: {folders.WRITES} is {value!r} in config.json; it must be one of {get_args(Writing)}.",
                code="unsupported-model",
            )
        return value

    @cached_property
    def generation_config(self) -> Mapping[str, Any]:
        """The fields of generation_config.json, for models that write; none for encoders and fine-tuned models."""
        path, sizes = self._verified / GENERATION, self.architecture
        if self.task or self.foreign or self.is_exported or not path.is_file():
            return {}
        generates = sizes.has_decoder or sizes.language_objective or self.writes
        return read_object(path) if generates else {}

    @property
    def companions(self) -> tuple[str, ...]:
        """The names of subfolders with models that were trained beside this one."""
        return tuple(name for name in COMPANIONS if (self.path / name / "config.json").is_file())

    @cached_property
    def report(self) -> Report:
        """The report on the backbone's tensors; for an export, a row for the table of pieces only."""
        if not self.is_exported:
            return self._assembled[1]
        sizes = self.architecture
        width = getattr(sizes, "embedding", 0) or sizes.width
        return Report(rows=(folders.TensorRow(name=names.PIECES, shape=(sizes.vocabulary, width), status="loaded"),))

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for the user on the location, the weights and the tokenizer."""
        report = Report(rows=tuple(folders.of_pieces(row, len(self.tokenizer)) for row in self.report.rows))
        texts = folders.text_id_remarks(self.config, self.tokenizer) if self.architecture.has_decoder else ()
        tokenizer = getattr(self.tokenizer, "remarks", ())
        return (*self.location.remarks, *report.remarks, *self.ignored, *texts, *tokenizer)

    @property
    def ignored(self) -> Iterator[str]:
        """A remark for the user on each file or setting that others apply and osbert does not."""
        if (self.path / ADAPTER).is_file():
            yield f"{ADAPTER} is not read: {MERGING}"
        if read_if_there(self.path / CONFIG).get("truncation_side") == "left":
            yield f"{CONFIG} asks for long texts to lose their beginning (truncation_side); here they lose their end."

    @property
    def has_pooler(self) -> bool:
        """Return whether the backbone's pooler was trained."""
        return getattr(self.architecture, "has_pooler", True) and not self.report.select_names("new")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the weights, independent of their files; for an export, of its ONNX files."""
        if not self.is_exported:
            return fingerprint(self._stored)
        digest = hashlib.sha256()
        for path in sorted(self._verified.glob("*.onnx*")):
            require_regular(path)
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def fill(self, learner: Learner) -> Report:
        """Fill a learner with the weights: see `huggingface.folders.fill`."""
        return folders.fill(self.tensors, learner, where=self.path)

    def release(self) -> None:
        """Drop the cached weights, to free their memory. Everything else that was read stays."""
        # A cached_property keeps its value in __dict__; without it, it is computed again.
        for part in ("_stored", "_assembled", "heads"):
            self.__dict__.pop(part, None)

    @cached_property
    def _verified(self) -> Path:
        """The path, after checking that it holds a model with unchanged files."""
        if not self.foreign:
            self.require_config()
        self.opening.check(self.path)
        return self.path

    @cached_property
    def _stored(self) -> dict[str, Tensor]:
        return self.foreign.tensors if self.foreign else read_whole(self._verified, self.config)

    @cached_property
    def _assembled(self) -> tuple[Backbone, Report]:
        architecture, tensors = self.architecture, self.tensors  # read first: files need no lock on random numbers
        with drawing():
            return folders.assemble(architecture, tensors, where=self.path)


def read_pretraining_heads(
    backbone: Backbone, tensors: Mapping[str, Tensor], *, writes: Writing | None = None
) -> tuple[dict[str, Head], dict[str, str]]:
    """Return the heads of `pretraining_heads`, filled; and why heads with incomplete weights are left out, by name."""
    with drawing():
        heads = pretraining_heads(backbone, tensors, writes=writes)
    unusable: dict[str, str] = {}
    for name, head in heads.items():
        for row in folders.fill_heads(tensors, Learner(backbone, {name: head})):
            if row.status == "new" or not row.expected:
                unusable.setdefault(name, f"{row.name}: {row.remark}")
    return {name: head for name, head in heads.items() if name not in unusable}, unusable


def _has_language_head(tensors: Mapping[str, Tensor], sizes: Sizes) -> bool:
    return all(name in tensors for name in names.head_names("mlm", sizes).values())


def pretraining_heads(
    backbone: Backbone, tensors: Mapping[str, Tensor], *, writes: Writing | None = None
) -> dict[str, Head]:
    """Return new heads for the objectives with tensors in `tensors`, by name; `writes` as for MaskedLanguageHead."""
    heads: dict[str, Head] = {}
    if _has_language_head(tensors, backbone.architecture):
        heads["mlm"] = MaskedLanguageHead(backbone, writes=writes)
    if any(name in tensors for name in names.HEADS["nsp"].values()):
        heads["nsp"] = SequenceHead(backbone, target="nsp", form="nsp")
    if any(name in tensors for name in names.HEADS["order"].values()):
        heads["sentence_order"] = SequenceHead(backbone, target="sentence_order", form="order")
    osbert_heads = {name.split(".")[1] for name in tensors if name.startswith("heads.")} - heads.keys()
    if "replaced" in osbert_heads or any(name in tensors for name in names.HEADS["replaced"].values()):
        from osbert.models.heads.discriminator import DiscriminatorHead

        heads["replaced"] = DiscriminatorHead(backbone)
        osbert_heads.discard("replaced")
    if osbert_heads:
        from osbert.objectives import Objective

    for name in sorted(osbert_heads.intersection(components.names("objectives"))):
        heads[name] = components.find("objectives", name, base=Objective)().head(backbone)
    return heads
