"""osbert analyse compare: measures how similar the layers of models are, or those of one run over its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from osbert.console.arguments import ModelFolder, OpeningOptions
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result
from osbert.interop.opening import CAREFUL
from osbert.reading.documents import DocumentOptions
from osbert.terminal import one_line
from osbert_lab.analysis.settings import ComparisonRequest, SampleOptions


def compare(
    *models: ModelFolder,
    data: Path,
    out: Path,
    analysis: Annotated[SampleOptions | None, Parameter(name="*")] = None,
    reading: Annotated[DocumentOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Compare models on the same texts: how alike their layers are, how far they moved, and their heads side by side.

    All models are compared with the first one. A pretraining run by itself is compared with the models that it kept on
    its way (--models-every). Models may have different tokenizers and sizes.

    Parameters
    ----------
    models
        The folders of models, or their names (docs/models-by-name.md); or one run.
    data
        A file, or a folder with files, of text.
    out
        The folder to write: report.html and analysis.json.
    """
    from osbert_lab.analysis.compare import compare as run

    request = ComparisonRequest(
        analysis=analysis or SampleOptions(), file=reading or DocumentOptions(), opening=opening
    )
    with showing_progress("tokens") as watch:
        report = run(models, data=data, out=out, request=request, watch=watch)
    print(*map(one_line, report.lines()), sep="\n")
    return report
