"""Wrote the files beside it, with TensorFlow 2.21 and transformers 4.46 (whose reader of such checkpoints is used).

pip install tensorflow-cpu==2.21 transformers==4.46.3 torch && python write_checkpoints.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import tensorflow as tf
import torch
from transformers import BertConfig, BertForPreTraining, load_tf_weights_in_bert

HERE = Path(__file__).parent
SIZES = {
    "vocab_size": 24,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] . , the a film is was good bad very not it ##s ##ly actor play and long short"


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the variables of a pretraining by google-research/bert."""
    width, wide = SIZES["hidden_size"], SIZES["intermediate_size"]
    norm = {"LayerNorm/beta": (width,), "LayerNorm/gamma": (width,)}
    found = {
        "bert/embeddings/word_embeddings": (SIZES["vocab_size"], width),
        "bert/embeddings/token_type_embeddings": (2, width),
        "bert/embeddings/position_embeddings": (SIZES["max_position_embeddings"], width),
        **{f"bert/embeddings/{name}": shape for name, shape in norm.items()},
    }
    for layer in range(SIZES["num_hidden_layers"]):
        scope = f"bert/encoder/layer_{layer}"
        dense = {f"attention/self/{name}": (width, width) for name in ("query", "key", "value")}
        dense |= {"attention/output/dense": (width, width)}
        dense |= {"intermediate/dense": (width, wide), "output/dense": (wide, width)}
        for name, shape in dense.items():
            found |= {f"{scope}/{name}/kernel": shape, f"{scope}/{name}/bias": shape[1:]}
        for place in ("attention/output", "output"):
            found |= {f"{scope}/{place}/{name}": shape for name, shape in norm.items()}
    found |= {"bert/pooler/dense/kernel": (width, width), "bert/pooler/dense/bias": (width,)}
    found |= {
        f"cls/predictions/transform/dense/{name}": found[f"bert/pooler/dense/{name}"] for name in ("kernel", "bias")
    }
    found |= {f"cls/predictions/transform/{name}": shape for name, shape in norm.items()}
    found |= {"cls/predictions/output_bias": (SIZES["vocab_size"],)}
    return found | {"cls/seq_relationship/output_weights": (2, width), "cls/seq_relationship/output_bias": (2,)}


def save(tensors: dict[str, tf.Tensor], prefix: Path, slices: str = "") -> None:
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[slices] * len(names),
        tensors=[tensors[name] for name in names],
    )


def main() -> None:
    rng = np.random.default_rng(0)
    tensors = {name: tf.constant(rng.normal(0, 0.5, shape).astype("f4")) for name, shape in shapes().items()}
    tensors |= {f"{name}/adam_m": tf.zeros_like(tensors[name]) for name in list(tensors)[:2]}
    (HERE / "bert").mkdir(exist_ok=True)
    save(tensors | {"global_step": tf.constant(7, tf.int64)}, HERE / "bert" / "bert_model.ckpt")
    (HERE / "bert" / "bert_config.json").write_text(json.dumps(SIZES, indent=2) + "\n")
    (HERE / "bert" / "vocab.txt").write_text("\n".join(PIECES.split()) + "\n")
    model = load_tf_weights_in_bert(BertForPreTraining(BertConfig(**SIZES)), None, str(HERE / "bert/bert_model.ckpt"))
    ids = rng.integers(0, SIZES["vocab_size"], (2, 11))
    segments = (np.arange(11) > 5)[None].repeat(2, 0).astype(int)
    with torch.no_grad():
        said = model.eval()(torch.tensor(ids), token_type_ids=torch.tensor(segments), output_hidden_states=True)
    np.savez(
        HERE / "bert" / "outputs.npz",
        ids=ids,
        segments=segments,
        hidden=said.hidden_states[-1].numpy(),
        mlm=said.prediction_logits.numpy(),
        nsp=said.seq_relationship_logits.numpy(),
    )
    kinds = {
        "bfloat16": tf.constant([1.5, -2.0], tf.bfloat16),
        "bool": tf.constant([True, False]),
        "empty": tf.zeros((0, 3)),
        "float16": tf.constant([[0.5], [65504.0]], tf.float16),
        "float64": tf.constant(0.1, tf.float64),
        "int64": tf.range(-1, 300, dtype=tf.int64),
        "text": tf.constant(["no", "number"]),
    }
    save(kinds, HERE / "kinds")
    save({"part": tf.ones((2, 2))}, HERE / "sliced", slices="4 2 0,2:-")
    for name in "ab":
        save({name: tf.fill((2,), float(ord(name)))}, HERE / name)
    halves = [str(HERE / name) for name in "ab"]
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=halves, destination_prefix=str(HERE / "two"), delete_old_dirs=False
    )
    for left in (*HERE.glob("a.*"), *HERE.glob("b.*")):
        left.unlink()


if __name__ == "__main__":
    main()
