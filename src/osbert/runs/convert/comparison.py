"""Checks a conversion: source and target must give the same outputs for a few texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from osbert.errors import Problems, UserError
from osbert.interop.conversion import Difference, differences, model_of, open_any, sequences
from osbert.interop.opening import Opening
from osbert.interop.task_files import TaskHint
from osbert.runs.contract import Watch
from osbert.terminal import format_count


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """Event: the largest differences between two models. `of`: how they were compared."""

    of: str
    differences: Sequence[Difference]

    def lines(self) -> Iterator[str]:
        """Yield a line for each difference, marked if it exceeds its bound."""
        yield f"{self.of}, largest differences (bound {self.differences[0].bound:g}):"
        yield from (
            f"  {difference.what}: {difference.largest:.2g}{'' if difference.small else '  PROBLEM'}"
            for difference in self.differences
        )


def compare(source: Path, written: Path, hint: TaskHint, opening: Opening, watch: Watch) -> None:
    """Load both models from disk and compare their outputs. Raises UserError if a difference exceeds its bound."""
    first, second = model_of(open_any(source, opening), hint), model_of(open_any(written, opening))
    try:
        model_differences = differences(first, second)
    except ValueError as error:
        raise UserError(f"The forward check has failed: {error}. Nothing was written.", code="check-failed") from error
    require_small(
        model_differences, of=f"Both loaded anew, on {format_count(len(sequences(first)), 'sequence')}", watch=watch
    )


def require_small(model_differences: Sequence[Difference], *, of: str, watch: Watch) -> None:
    """Report the differences of two models. Raises UserError if one exceeds its bound."""
    watch(ModelComparison(of=of, differences=model_differences))
    problems = Problems(heading="The forward check has failed; nothing was written")
    for difference in model_differences:
        if not difference.small:
            problems.add(
                f"{difference.what} differ by {difference.largest:g}, more than {difference.bound:g}",
                code="check-failed",
            )
    problems.stop_if_any()
