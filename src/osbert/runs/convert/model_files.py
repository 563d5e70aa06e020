"""Forms of a model in one file, such as a table of word vectors. Other packages add them.

An entry point in the group `osbert.runs.convert.model_files` leads to a ModelFileForm; --to takes its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from osbert.errors import UserError, nearest
from osbert.extensions import extensions
from osbert.interop.opening import Opening

GROUP = "osbert.runs.convert.model_files"
FORMS = ("osbert", "huggingface", "google", "onnx")
"""The forms of osbert itself."""


class ModelFileForm(Protocol):
    """A form of a model in one file."""

    content: str
    """What its files hold, for messages: "word vectors"."""

    def has_name_of(self, path: Path) -> bool:
        """Return whether a path is of this form, judged by its name."""

    def read(self, source: Path, target: Path) -> Sequence[str]:
        """Write a run folder with the model of a file; return remarks for the user."""

    def write(self, source: Path, target: Path, opening: Opening) -> None:
        """Write the model of a folder to a file. Raises UserError if the form has no such model."""


def form_names() -> Sequence[str]:
    """Return the names of all forms."""
    return [*extensions(GROUP)]


def find_form(name: str) -> ModelFileForm:
    """Return the form of a name. Raises UserError if there is none."""
    extension = extensions(GROUP).get(name)
    if extension is None:
        raise UserError(f"'{name}' is not a model format.{nearest(name, form_names())}", code="invalid-value")
    form: ModelFileForm = extension.load()
    return form


def form_of(path: Path) -> ModelFileForm | None:
    """Return the form of a file; None for folders, and for files of no form."""
    if not path.is_file():
        return None
    return next((form for form in map(find_form, form_names()) if form.has_name_of(path)), None)


if TYPE_CHECKING:
    TargetForm = str
else:
    TargetForm = Literal[*FORMS, *form_names()]
    """What --to takes."""
