"""Which weights of the encoder are trained in a fine-tuning: preparation before, and merging afterwards."""

from __future__ import annotations

from osbert.errors import UserError
from osbert.interop.huggingface import names
from osbert.models.adapting.tuning import Factors, add_low_rank, freeze_lowest, learn_only, merge, trainable_modules
from osbert.models.contract import Backbone
from osbert.runs.finetune.settings import Kind


def prepare(backbone: Backbone, kind: Kind, *, rank: int, frozen: int) -> None:
    """Freeze or add weights for a kind of tuning. LoRA matrices are initialised from torch's random generator.

    Raises UserError if more layers are to be frozen than the encoder has.
    """
    if kind == "adapters":
        learn_only(backbone, trainable_modules(backbone))
    elif kind == "none":
        learn_only(backbone, ())
    elif kind == "lora":
        learn_only(backbone, add_low_rank(backbone, rank))
    else:
        try:
            freeze_lowest(backbone, frozen)
        except ValueError as error:
            raise UserError(f"--frozen {frozen}: {error}.", code="invalid-value") from error


def describe(backbone: Backbone) -> str:
    """Describe how many of the encoder's weights are trained; "" if all are."""
    weights = [(weight.numel(), weight.requires_grad) for weight in backbone.parameters()]
    whole, learning = sum(count for count, _ in weights), sum(count for count, learns in weights if learns)
    return (
        "" if learning == whole else f"{learning:,} of the encoder's {whole:,} weights learn ({learning / whole:.1%})"
    )


def changes(backbone: Backbone) -> dict[str, Factors]:
    """Merge the LoRA changes into the matrices; return the changes by the names of their tensors."""
    stored = names.backbone(backbone.architecture)
    return {
        matrix: change
        for module, factors in merge(backbone).items()
        for parameter, matrices in stored.items()
        for matrix in matrices
        for name, change in factors.items()
        if parameter.startswith(f"{module}.") and matrix.endswith(f".{name}.weight")
    }
