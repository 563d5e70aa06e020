"""The options --trust and --no-verify, which every verb that opens a folder takes."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from osbert.interop.opening import Opening

OpeningOptions = Annotated[Opening, Parameter(name="*")]
