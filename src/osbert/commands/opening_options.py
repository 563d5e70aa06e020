"""The options --trust and --no-verify, of every command that opens a folder."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from osbert.interop.opening import Opening

OpeningOptions = Annotated[Opening, Parameter(name="*")]
