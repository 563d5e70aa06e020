"""The encoder that a fine-tuning starts from, with the layers that it is given afresh."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from osbert.errors import UserError
from osbert.interop.huggingface.folders import read_encoder
from osbert.interop.opening import CAREFUL, Opening
from osbert.models.adapting.added_layers import add_adapters, add_recurrent, tuned_sizes
from osbert.models.contract import Backbone
from osbert.runs.finetune.settings import FinetuneSettings
from osbert.text.file_tokenizer import AnyTokenizer


@dataclass(frozen=True, kw_only=True)
class Model:
    """Where fine-tuning starts from, and what was odd about it."""

    folder: Path
    backbone: Backbone
    tokenizer: AnyTokenizer
    remarks: tuple[str, ...] = ()


def read_model(
    folder: Path, settings: FinetuneSettings, *, from_scratch: bool = False, opening: Opening = CAREFUL
) -> Model:
    """Return the encoder in a folder, with the settings' dropout; `from_scratch` keeps its sizes, with fresh weights.

    Recurrent layers and adapters that the settings ask for are fresh unless the encoder has such. Raises UserError when
    the folder is no encoder, its vocabulary does not fit, or it cannot bear such layers.
    """
    seed = settings.seed
    with seeded(seed + 1):  # a pooler that has to be new must not have the first numbers of the head, drawn from `seed`
        encoder = read_encoder(folder, opening)
    own = encoder.backbone
    try:
        sizes = tuned_sizes(
            own.architecture, dropout=settings.dropout, recurrent=settings.recurrent, adapters=settings.adapters
        )
        backbone = sizes.empty()
    except ValueError as error:
        raise UserError(f"{folder} cannot be fine-tuned so: {error}.") from error
    if from_scratch:
        with seeded(seed):
            return Model(folder=folder, backbone=sizes.build(), tokenizer=encoder.tokenizer)
    remarks = list(encoder.report.remarks)
    # Each has a seed of its own: the head is drawn from `seed`, a new pooler from the next one.
    for number, add in enumerate((add_recurrent, add_adapters), start=2):
        with seeded(seed + number):
            remarks += filter(None, [add(own, sizes)])
    backbone.load_state_dict(own.state_dict(), assign=True)
    return Model(folder=folder, backbone=backbone, tokenizer=encoder.tokenizer, remarks=tuple(remarks))


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw torch's random numbers from a seed inside the block, and leave the caller's as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
