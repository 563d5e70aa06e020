"""Where rows with results are written: the form of an output, by its name or the user's word, and streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from osbert import components
from osbert.errors import UserError, nearest
from osbert.files import is_stream, require_file
from osbert.reading.form import plain_suffix
from osbert.runs.rows.forms.contract import RowForm, RowLayout
from osbert.runs.rows.forms.records import holds_array
from osbert.runs.rows.standard_input import STREAM
from osbert.terminal import Screen

FORMS = "runs.rows.forms"


@dataclass(frozen=True, kw_only=True)
class RowOutput:
    """Where rows are written: to `path`, whose suffix decides the form, or to `stream`, without a path and for -.

    `out_form`: the form where the path does not tell it. `spreadsheet_safe`: see RowLayout.
    """

    path: Path | None = None
    stream: TextIO | None = None
    out_form: str = ""
    spreadsheet_safe: bool = False

    @property
    def file(self) -> Path | None:
        """Return the path, None of `stream`."""
        return None if self.stream and self.path in (None, STREAM) else self.path

    @property
    def kept(self) -> Path | None:
        """Return the file, which a stopped command goes on with; None if the output is a stream."""
        return None if self.file is None or is_stream(self.file) else self.file

    def refuse_inputs(self, inputs: Iterable[Path]) -> None:
        """Raise UserError if the file cannot be an output, or is one of `inputs`."""
        if self.file is not None:
            require_file(self.file, inputs)

    @property
    def is_terminal(self) -> bool:
        """Return whether it is a terminal, as standard output or by the name of its device."""
        if self.file is None:
            return self.stream is not None and self.stream.isatty()
        if not self.file.is_char_device():
            return False
        with self.file.open("wb", buffering=0) as device:
            return device.isatty()

    def choose_form(self, layout: RowLayout) -> RowForm:
        """Return what writes rows; on standard output and devices without an ending the form is the input's.

        Raises UserError at an unknown form, and at options that do not go with it.
        """
        layout = replace(
            layout,
            bare=self.file is None,
            on_terminal=self.is_terminal,
            spreadsheet_safe=self.spreadsheet_safe,
        )
        input_form = plain_suffix(layout.file)[1:]
        if self.out_form and holds_array(layout.table):
            input_form = "json"  # an array in a .jsonl file is not the lines that --out-form jsonl means
        suffix = self.file.suffix.lower()[1:] if self.file else ""
        alike = self.out_form in ("", input_form) and suffix in ("", input_form)
        if not (suffix or self.kept):
            suffix = "jsonl" if layout.lines else "csv"
        name = self.out_form or suffix
        kinds: list[type[RowForm]] = [components.find(FORMS, name, base=RowForm) for name in components.names(FORMS)]
        fitting = [
            kind for kind in kinds if name in (form_name(kind), *kind.endings) and kind.suits(layout, alike=alike)
        ]
        fitting.sort(key=lambda kind: ("suits" not in vars(kind), form_name(kind) != name))  # the special first
        if not fitting:
            suitable = [kind for kind in kinds if kind.suits(layout, alike=False)]
            names = sorted({ending for kind in suitable for ending in (form_name(kind), *kind.endings)})
            raise UserError(
                f"{self.path or 'standard output'}: '{name}' is not an output format of these rows. Use one of "
                f"{', '.join(names)} as the ending of --out.{nearest(name, names)}",
                code="unknown-output-format",
            )
        if self.spreadsheet_safe and not fitting[0].guards_formulas:
            raise UserError(
                "--spreadsheet-safe is for .csv and .tsv: in other formats no cell is taken for a formula. Remove it.",
                code="options-exclude-each-other",
            )
        return fitting[0](layout)

    @contextmanager
    def text_stream(self) -> Iterator[TextIO]:
        """Give the stream, or the pipe or device, that rows are written to."""
        if self.file is None:
            assert self.stream is not None
            yield self.stream
            return
        with self.file.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
            yield cast(TextIO, Screen(stream)) if stream.isatty() else stream

    @contextmanager
    def byte_stream(self) -> Iterator[BinaryIO]:
        """Give the stream, or the pipe or device, as bytes."""
        with self.text_stream() as stream:
            yield stream.buffer
            stream.buffer.flush()


def form_name(kind: type[RowForm]) -> str:
    """Return the name of a form: that of its file."""
    return kind.__module__.rpartition(".")[2]
