"""Settings for opening a folder: whether to import code that it names, and to verify the hashes of its files.

Every function that opens a folder takes one `Opening`, and every command that opens one has its two options.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from osbert.errors import Problems
from osbert.training.run_folder import HASHED, RECIPE, RunFolder


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The settings for opening a folder. The defaults are safe for a folder of unknown origin."""

    trust: bool = False
    """Import the code that a recipe file or a folder's recipe.toml names, such as task = "mypackage.spam". Only for
    files whose author you trust: the code runs with all of your permissions."""
    verify: bool = True
    """Compare the files of a finished run with the hashes in its run.json before they are used."""

    @property
    def again(self) -> Opening:
        """Return the settings for opening the same folder again, without a second comparison of hashes."""
        return replace(self, verify=False)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the command-line options for these settings."""
        return (*(["--trust"] if self.trust else []), *([] if self.verify else ["--no-verify"]))

    def check(self, folder: Path, among: Collection[str] = (*HASHED, RECIPE)) -> None:
        """Raise UserError if a file of a finished run is missing or has changed since, unless `verify` is off.

        A folder without hashes passes: a run of an earlier version, or a folder that osbert did not write. `among`: the
        files that are about to be read.
        """
        if not self.verify:
            return
        problems = Problems(heading=f"{folder} has changed since its run was finished")
        for name in RunFolder(folder).find_changes(among):
            if not (folder / name).is_file():
                difference = " is missing"
            elif name == RECIPE:
                difference = ": its task, or a setting of the task, differs from the finished run's"
            else:
                difference = ": its SHA-256 differs from the one in run.json"
            problems.add(
                f"{folder / name}{difference}. Copy it again from an undamaged copy. If you changed it on "
                "purpose, add --no-verify (in Python: verify=False).",
                code="damaged-file",
            )
        problems.stop_if_any()


CAREFUL = Opening()
"""The default settings."""
