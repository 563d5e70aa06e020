"""How a folder is opened: whether code that it names is imported, and whether its files are compared with their hashes.

Every function that opens a folder takes one `Opening`, and every verb offers its two settings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from osbert.errors import Problems
from osbert.training.run_folder import HASHED, RunFolder


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The settings of opening a folder. The defaults suit a folder from a stranger."""

    trust: bool = False
    """Import the code that a recipe file or a folder's recipe.toml names, such as task = "mypackage.spam". Only for
    files whose author you trust: such code can do all that you can do."""
    verify: bool = True
    """Compare the files of a finished run with the hashes in its run.json before they are used."""

    @property
    def again(self) -> Opening:
        """Return how the same folder is opened once more: its hashes have been compared."""
        return replace(self, verify=False)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the options that give a command these settings."""
        return (*(["--trust"] if self.trust else []), *([] if self.verify else ["--no-verify"]))

    def check(self, folder: Path, among: Collection[str] = HASHED) -> None:
        """Raise UserError if a file of a finished run differs from the one that the run wrote, unless `verify` is off.

        A folder without hashes passes: one that is not a run of osbert's, or a run of an earlier version. `among`: the
        files that are about to be read.
        """
        if not self.verify:
            return
        problems = Problems(heading=f"{folder} is not as its run wrote it")
        for name in RunFolder(folder).changed(among):
            problems.add(
                f"{folder / name}: its SHA-256 is not that in run.json. Copy it again from where it is whole. If "
                "you have changed it on purpose, give --no-verify (in Python: verify=False)."
            )
        problems.stop_if_any()


CAREFUL = Opening()
"""How a folder is opened unless the user says otherwise."""
