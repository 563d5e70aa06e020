"""Forms of models that other packages add to `osbert convert`: folders with a checkpoint, and models in one file.

An entry point in the group `osbert.interop.foreign_folders` leads to a ForeignForm, and one in
`osbert.interop.foreign_files` to a ModelFileForm; --to takes its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from osbert.errors import UserError, nearest
from osbert.extensions import extensions

if TYPE_CHECKING:
    from torch import Tensor

    from osbert.interop.huggingface.folders import TensorRow
    from osbert.interop.opening import Opening
    from osbert.text.file_tokenizer import AnyTokenizer

FOLDERS, FILES = "osbert.interop.foreign_folders", "osbert.interop.foreign_files"
OSBERT_FORMS = ("osbert", "huggingface", "onnx")
"""The forms of osbert itself."""


@dataclass(frozen=True, kw_only=True)
class ForeignModel:
    """The content of a folder in a foreign form.

    `config`: the fields of a config.json, by Hugging Face's names. `tensors`: by Hugging Face's names without prefix.
    `unused`: the shapes of all other tensors, by the form's names. `folder`: the folder of the config and the
    tokenizer's files.
    """

    form: ForeignForm
    config: Mapping[str, Any]
    tensors: dict[str, Tensor]
    unused: Mapping[str, tuple[int, ...]]
    folder: Path


class ForeignForm(Protocol):
    """A form of folders with a checkpoint, such as google-research/bert's."""

    name: str
    """What --to takes."""
    title: str
    """What a report calls a model of this form: "TensorFlow's"."""
    content: str
    """What its folders hold, for messages: "TensorFlow checkpoint such as bert_model.ckpt.index"."""

    def find(self, path: Path) -> Path | None:
        """Return the checkpoint at a path; None if there is none. Raises UserError if there are several."""

    def read(self, checkpoint: Path) -> ForeignModel:
        """Read a checkpoint. Raises UserError if a file is missing or damaged, or the model is not supported."""

    def write(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], tokenizer: AnyTokenizer, folder: Path
    ) -> None:
        """Write the model of a Hugging Face folder. Raises UserError, before writing, if the form has no such model."""

    def rename(self, row: TensorRow) -> TensorRow:
        """Return a row of the report with the form's name and shape of the tensor."""

    def is_training_state(self, name: str) -> bool:
        """Return whether a tensor, by the form's name, is used in training only."""


class ModelFileForm(Protocol):
    """A form of a model in one file, such as a table of word vectors."""

    content: str
    """What its files hold, for messages: "word vectors"."""

    def has_name_of(self, path: Path) -> bool:
        """Return whether a path is of this form, judged by its name."""

    def read(self, source: Path, target: Path) -> Sequence[str]:
        """Write a run folder with the model of a file; return remarks for the user."""

    def write(self, source: Path, target: Path, opening: Opening) -> None:
        """Write the model of a folder to a file. Raises UserError if the form has no such model."""


def folder_forms() -> Sequence[ForeignForm]:
    """Return all forms of folders."""
    return [extension.load() for extension in extensions(FOLDERS).values()]


def folder_form_names() -> Sequence[str]:
    """Return the names of osbert's forms and of all other forms of folders."""
    return [*OSBERT_FORMS, *extensions(FOLDERS)]


def form_names() -> Sequence[str]:
    """Return the names of all forms."""
    return [*folder_form_names(), *extensions(FILES)]


def find_form(group: str, name: str) -> Any:
    """Return the form with a name, a ForeignForm of FOLDERS or a ModelFileForm of FILES. Raises UserError."""
    if extension := extensions(group).get(name):
        return extension.load()
    raise UserError(f"There is no model format '{name}'.{nearest(name, form_names())}", code="invalid-value")


def form_of_file(path: Path) -> ModelFileForm | None:
    """Return the form of a model in one file; None for folders, and for other files."""
    forms = (extension.load() for extension in extensions(FILES).values()) if path.is_file() else ()
    return next((form for form in forms if form.has_name_of(path)), None)


if TYPE_CHECKING:
    TargetForm = str
else:
    TargetForm = Literal[*form_names()]
    """What --to takes."""
