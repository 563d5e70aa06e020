"""DistilBERT (Sanh et al. 2019): no segments; its classifier of texts has the pooler, with ReLU."""

from __future__ import annotations

from osbert.interop.huggingface.family import Family
from osbert.models.architecture import Architecture

FAMILY = Family(
    types=("distilbert",),
    name="DistilBert",
    values={"segments": 0, "pooling": "relu"},
    varies=("activation",),
    fits=lambda sizes: sizes.epsilon == Architecture.epsilon,
    fields={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "activation",
        "classifier_dropout": "seq_classif_dropout",
    },
    only={"is_decoder": False},
    without=("type_vocab_size", "layer_norm_eps", "position_embedding_type"),
    tensors=(
        ("transformer.layer.", "encoder.layer."),
        (".attention.q_lin.", ".attention.self.query."),
        (".attention.k_lin.", ".attention.self.key."),
        (".attention.v_lin.", ".attention.self.value."),
        (".attention.out_lin.", ".attention.output.dense."),
        (".sa_layer_norm.", ".attention.output.LayerNorm."),
        (".ffn.lin1.", ".intermediate.dense."),
        (".ffn.lin2.", ".output.dense."),
        (".output_layer_norm.", ".output.LayerNorm."),
        ("pre_classifier.", "pooler.dense."),
        ("vocab_transform.", "cls.predictions.transform.dense."),
        ("vocab_layer_norm.", "cls.predictions.transform.LayerNorm."),
        ("vocab_projector.bias", "cls.predictions.bias"),
        ("vocab_projector.", "cls.predictions.decoder."),
    ),
)
