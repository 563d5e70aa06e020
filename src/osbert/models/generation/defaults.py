"""How a published model writes if nothing is given: the options of its folder, and what is not applied."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.models.generation.settings import GenerationOptions

FILE = "generation_config.json"
"""The file of a folder that has these defaults."""


@dataclass(frozen=True, kw_only=True)
class WritingDefaults:
    """How a folder's model writes if nothing is given: `options`, the settings `applied`, and those `left` out."""

    options: GenerationOptions
    applied: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """Return a sentence on what is applied and what is not; "" if the file asks for nothing."""
        parts = [
            f"{what} {', '.join(names)}"
            for what, names in (("applied", self.applied), ("not applied", self.left))
            if names
        ]
        return f"{FILE}: {'; '.join(parts)}." if parts else ""
