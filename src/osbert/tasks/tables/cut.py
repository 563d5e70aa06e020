"""Tasks with a setting `long` for texts that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from osbert.data.long_texts import Long
from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.tasks import Record
from osbert.tasks.tables import TableTask


class CutTask(TableTask):
    """A task whose texts may be truncated. Subclasses define and document the setting `long`."""

    long: Long
    too_long: ClassVar[str]
    """The message for a record that must not be truncated: `count` surplus pieces, `length` tokens."""

    @property
    def unread(self) -> str:
        """Describe the position of pieces that are not used."""
        return "in the middle" if self.long == "head+tail" else super().unread

    def refuse_long(self, records: Sequence[Record], packer: Packer, problems: Problems) -> None:
        """Report each record that does not fit to `problems`, if long = "error"."""
        if self.long != "error":
            return
        for record in records:
            # Encoding truncates, whatever `long` is, and counts the pieces.
            if count := sum(example.truncated for example in self.encode(record, packer)):
                problems.add(
                    f"{record.place}: {self.too_long.format(count=count, length=packer.length)}", code="text-too-long"
                )
