"""The encoder that a fine-tuning starts from, with the layers that it is given afresh."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from osbert.errors import UserError
from osbert.interop.huggingface.folders import read_encoder
from osbert.interop.opening import CAREFUL, Opening
from osbert.models.adapting.adapters import Adapter
from osbert.models.adapting.recurrent import Recurrent
from osbert.models.families.transformer import Transformer
from osbert.text.file_tokenizer import AnyTokenizer


@dataclass(frozen=True, kw_only=True)
class Model:
    """Where fine-tuning starts from, and what was odd about it."""

    folder: Path
    backbone: Transformer
    tokenizer: AnyTokenizer
    remarks: tuple[str, ...] = ()


def read_model(
    folder: Path,
    *,
    from_scratch: bool,
    seed: int,
    dropout: float,
    recurrent: int = 0,
    adapters: int = 0,
    opening: Opening = CAREFUL,
) -> Model:
    """Return the encoder in a folder, with this dropout; `from_scratch` keeps its sizes and draws fresh weights.

    `recurrent`: layers of a bidirectional LSTM on top; `adapters`: width of adapters in its blocks. They are fresh
    unless the encoder has such; 0 for its own. Raises UserError when the folder is no encoder, its vocabulary does not
    fit, or it cannot bear such layers.
    """
    with seeded(seed + 1):  # a pooler that has to be new must not have the first numbers of the head, drawn from `seed`
        encoder = read_encoder(folder, opening)
    own = encoder.backbone.architecture
    sizes = replace(
        own,
        dropout=dropout,
        attention_dropout=dropout,
        recurrent=recurrent or own.recurrent,
        adapters=adapters or own.adapters,
    )
    try:
        backbone = sizes.empty()
    except ValueError as error:
        raise UserError(f"{folder} cannot be fine-tuned so: {error}.") from error
    if from_scratch:
        with seeded(seed):
            return Model(folder=folder, backbone=sizes.build(), tokenizer=encoder.tokenizer)
    remarks = encoder.report.remarks
    if sizes.recurrent != own.recurrent:
        with seeded(seed + 2):  # the head's and the pooler's seeds are others
            encoder.backbone.recurrent = Recurrent(sizes)
        remarks += (f"the bidirectional LSTM on top starts afresh (recurrent = {sizes.recurrent})",)
    if sizes.adapters != own.adapters:
        with seeded(seed + 3):
            for block in encoder.backbone.blocks:
                block.attention_adapter, block.feedforward_adapter = Adapter(sizes), Adapter(sizes)
        remarks += (f"adapters of width {sizes.adapters} in its blocks start afresh",)
    backbone.load_state_dict(encoder.backbone.state_dict(), assign=True)
    return Model(folder=folder, backbone=backbone, tokenizer=encoder.tokenizer, remarks=remarks)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw torch's random numbers from a seed inside the block, and leave the caller's as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
