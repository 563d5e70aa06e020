"""Tasks that say by `long` how texts are read that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from osbert.data.long_texts import Long
from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.tasks import Record
from osbert.tasks.tables import TableTask


class CutTask(TableTask):
    """A task on texts of which a part may be left out. The setting `long` is the subclass's, and says what it means."""

    long: Long
    too_long: ClassVar[str]
    """The message for a record that must not be cut: `count` surplus pieces, `length` tokens."""

    @property
    def unread(self) -> str:
        """Return where the pieces lie that are not read."""
        return "in the middle" if self.long == "head+tail" else super().unread

    def refuse_long(self, records: Sequence[Record], packer: Packer, problems: Problems) -> None:
        """Note each record that does not fit, if none may be cut."""
        if self.long != "error":
            return
        for record in records:
            if count := sum(example.truncated for example in self.encode(record, packer)):
                problems.add(
                    f"{record.place}: {self.too_long.format(count=count, length=packer.length)}", code="text-too-long"
                )
