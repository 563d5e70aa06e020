"""What of the encoder learns in a fine-tuning: made ready before, and written afterwards as it was learnt."""

from __future__ import annotations

from osbert.errors import UserError
from osbert.interop.huggingface import names
from osbert.models.adapting.adapters import adapted
from osbert.models.adapting.freezing import freeze_lowest, learn_only
from osbert.models.adapting.lora import Factors, add_low_rank, merge
from osbert.models.contract import Backbone
from osbert.runs.finetune.settings import Kind


def prepare(backbone: Backbone, kind: Kind, *, rank: int, frozen: int) -> None:
    """Decide what of the encoder learns; changes of low rank, if these, get random numbers from torch's generator.

    Raises UserError when more layers are to be frozen than there are.
    """
    if kind == "adapters":
        learn_only(backbone, adapted(backbone))
    elif kind == "lora":
        learn_only(backbone, add_low_rank(backbone, rank))
    else:
        try:
            freeze_lowest(backbone, frozen)
        except ValueError as error:
            raise UserError(f"--frozen {frozen}: {error}.", code="invalid-value") from error


def describe(backbone: Backbone) -> str:
    """Return in words how much of the encoder learns, "" for all of it."""
    weights = [(weight.numel(), weight.requires_grad) for weight in backbone.parameters()]
    whole, learning = sum(count for count, _ in weights), sum(count for count, learns in weights if learns)
    return (
        "" if learning == whole else f"{learning:,} of the encoder's {whole:,} weights learn ({learning / whole:.1%})"
    )


def changes(backbone: Backbone) -> dict[str, Factors]:
    """Add the changes of low rank to the matrices for good; return them by the names that the tensors get."""
    stored = names.backbone(backbone.architecture)
    return {
        matrix: change
        for module, factors in merge(backbone).items()
        for ours, matrices in stored.items()
        for matrix in matrices
        for name, change in factors.items()
        if ours.startswith(f"{module}.") and matrix.endswith(f".{name}.weight")
    }
