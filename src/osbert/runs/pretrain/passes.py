"""Resolves data.micro_tokens = "auto": the most tokens of one pass, by the memory that they take.

Larger passes are faster, because every pass adds its gradients to those of all weights, but they need more memory. On a
CPU the gain has ended at PASS_BYTES of activations (docs/results.md#memory); a GPU needs more tokens to be busy. The
cut of a step into passes changes its rounding and its dropout, so the number is kept in run.json, and a resumed run
takes it from there, as it takes data.held_out_of.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from osbert.models.contract import matrix_weights
from osbert.runs.contract import Notice, Watch, ignore
from osbert.runs.pretrain.settings import PretrainPlan
from osbert.training.distributed import ALONE, Group
from osbert.training.memory import free_memory
from osbert.training.processor import choose
from osbert.training.run_folder import RunFolder

PASS_BYTES, FEWEST = 2**30, 1_024
"""On a CPU a pass takes these bytes of activations, or FEWEST tokens if they take more."""
MOST = 2**16
"""Most tokens of a pass on a GPU."""
ROOM = 0.7
"""Fraction of the free memory that a run may take; the rest is for what grows later, and for other programs."""
HELD_OUT_BEFORE = "whole"
"""The setting data.held_out_of of runs that were begun before there was one."""
ACTIVATION = 5.0
"""Bytes of memory for each number that is kept for the backward pass, at the peak of a step in float32."""
WEIGHT = 16
"""Bytes for each weight during a step: itself, the gradient and two moments."""


def with_passes(plan: PretrainPlan, out: Path, watch: Watch = ignore, group: Group = ALONE) -> PretrainPlan:
    """Return the plan with a number for `data.micro_tokens` in place of "auto".

    A run that was started in `out` keeps its number. All processes of a group call this and get the same plan.
    """
    data = plan.settings.data
    if data.micro_tokens != "auto":
        return plan
    tokens = group.first(partial(read_pass_tokens, RunFolder(out)))
    if tokens is None:
        group.first(RunFolder(out).refuse_foreign)
        # 0 is a whole step, which is more than any other number.
        tokens = min(filter(None, group.gather(count_pass_tokens(plan, group.size), "tokens of a pass")), default=0)
        if tokens:
            watch(Notice(f"A pass takes at most {tokens:,} tokens. See data.micro_tokens."))
    return replace(plan, settings=replace(plan.settings, data=replace(data, micro_tokens=tokens)))


def with_division(plan: PretrainPlan, out: Path, group: Group = ALONE) -> PretrainPlan:
    """Return the plan with the division of the run that was started in `out`, if there is one and none was given."""
    stored = group.first(lambda: RunFolder(out).facts.get("settings", {}).get("data"))
    if not isinstance(stored, dict) or "data.held_out_of" in plan.given:
        return plan
    data = replace(plan.settings.data, held_out_of=stored.get("held_out_of", HELD_OUT_BEFORE))
    return replace(plan, settings=replace(plan.settings, data=data))


def read_pass_tokens(folder: RunFolder) -> int | None:
    """Return the number of the run in a folder, None if there is no run. Before there was "auto" it was 0, one pass."""
    facts = folder.facts
    data = facts.get("settings", {}).get("data", {}) if facts else None
    return None if data is None else data.get("micro_tokens", 0)


def count_pass_tokens(plan: PretrainPlan, processes: int = 1) -> int:
    """Return the most tokens of a pass, a power of two or those of one sequence; 0 if a whole step is one pass."""
    settings, model = plan.settings, plan.settings.model
    length = max(settings.data.length, settings.data.long_length if settings.data.long_share else 0)
    processor = choose(settings.training.device, settings.training.precision)
    on_gpu = processor.device.type == "cuda"
    # At most every second token is scored over the vocabulary, but in models that write, where all are.
    scored = 1.0 if model.language_objective else 0.5
    token_bytes = ACTIVATION * (model.layers * model.activations(length) + 3 * scored * model.vocabulary)
    if on_gpu and processor.precision == "bf16":
        token_bytes /= 2
    room = ROOM * free_memory(processor.device) - WEIGHT * matrix_weights(model.empty())
    most = min(MOST if on_gpu else max(PASS_BYTES / token_bytes, FEWEST), room / token_bytes)
    step = settings.data.batch * length / processes
    if step <= most or any(objective.whole for objective in plan.objectives.values()):
        return 0
    return max(length, 2 ** (int(max(most, 1)).bit_length() - 1))
