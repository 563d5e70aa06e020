"""The tensors of an encoder-decoder by BERT's names, from which those of T5 and BART are made."""

from __future__ import annotations

from osbert.interop.huggingface.names import transformer_names, weight_and_bias, without
from osbert.models.architecture import Architecture
from osbert_lab.writing.pair_architecture import PairArchitecture

_CROSS = {
    "cross.query": ("crossattention.self.query",),
    "cross.inward": ("crossattention.self.key", "crossattention.self.value"),
    "cross.outward": ("crossattention.output.dense",),
    "cross_norm": ("crossattention.output.LayerNorm",),
}
"""The names for a decoder's cross-attention."""


def pair_names(architecture: Architecture) -> dict[str, tuple[str, ...]]:
    """Return the names of an encoder-decoder: BERT's for the encoder, and the same under "decoder." for the decoder."""
    assert isinstance(architecture, PairArchitecture)
    names = {
        f"encoder.{parameter}": bert_names
        for parameter, bert_names in transformer_names(architecture.encoder_side).items()
    }
    sizes = architecture.decoder_side
    written = transformer_names(sizes)
    # Both sides share one table of pieces.
    del written["embeddings.pieces.weight"]
    for layer in range(sizes.layers):
        for parameter, bert_names in _CROSS.items():
            both = weight_and_bias(f"blocks.{layer}.{parameter}", bert_names, inside=f"encoder.layer.{layer}.")
            written |= both if sizes.biases else without(both, ".bias")
    for parameter, bert_names in written.items():
        decoder_names = tuple(f"decoder.{name.removeprefix('encoder.')}" for name in bert_names)
        names[f"writer.{parameter}"] = (
            bert_names if parameter.startswith("pooler") else decoder_names
        )  # one side at the most has a pooler
    if architecture.gated:  # T5 names the first layer differently if there is a gate
        names = {
            parameter: tuple(name.replace(".intermediate.dense.", ".intermediate.first.") for name in bert_names)
            for parameter, bert_names in names.items()
        }
    return names
