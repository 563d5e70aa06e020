"""osbert export: writes a run as ONNX, after a comparison with the run on its development rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from osbert.console.arguments import ModelFolder, OpeningOptions
from osbert.console.output import Result, print_notices, watching
from osbert.interop.opening import CAREFUL
from osbert.runs.contract import Notice
from osbert.runs.file_options import LabelledOptions
from osbert.runs.settings import ExportSettings


def export(
    run: ModelFolder,
    /,
    *,
    to: Literal["onnx"],
    out: Path | None = None,
    settings: Annotated[ExportSettings | None, Parameter(name="*")] = None,
    file: Annotated[LabelledOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Write a run as ONNX, with any batch and length, into a folder that needs nothing else.

    The development rows are predicted by the run and by what was exported. Metric, largest difference of the outputs,
    speed and size are shown side by side; a metric that drops by more than the tolerance is an error, and nothing is
    written. osbert predict, evaluate, embed and serve take the new folder in place of the run.

    Parameters
    ----------
    run
        A run folder of osbert's, a Hugging Face BERT folder, or a name (docs/models-by-name.md).
    to
        The form: onnx, which wants the extra onnx.
    out
        The folder to write; left open, RUN-onnx, or RUN-int8, beside the run.
    """
    from osbert.runs.export import ExportComparison
    from osbert.runs.export import export as run_export

    settings = settings or ExportSettings()

    def show(event: Any) -> None:
        print_notices()(event)
        for line in event.lines(int8=settings.int8) if isinstance(event, ExportComparison) else ():
            print(line)

    watch = watching(show)
    exported = run_export(run, out=out, settings=settings, options=file, opening=opening, watch=watch)
    watch(Notice(f"{'-> ' if exported.comparison else 'nothing was compared -> '}{exported.folder}"))
    return exported
