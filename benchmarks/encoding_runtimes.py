"""The fast runtimes that osbert's encoding is compared with, for encoding_peers.py: onnxruntime and OpenVINO.

Both read transformers' own model, as a user of them would export it. Texts are sorted by length, tokenised by
transformers' fast tokenizer in batches of 32, padded to the longest of the batch, and the mean of the last states is
taken in the graph's process by numpy.

    onnxruntime fp32   torch's exporter, then onnxruntime's own optimizer for BERT (attention, GELU and norms fused)
    onnxruntime int8   the same, weights in int8 by channel, activations quantised as they come (quantize_dynamic)
    openvino fp32      openvino.convert_model of the torch model, computed in float32
    openvino bf16      the same, computed in bf16
    openvino int8      the same, weights and activations in int8 by NNCF with 300 sentences to calibrate
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

BATCH = 32
CALIBRATION = 300
COLUMNS = ("input_ids", "attention_mask", "token_type_ids")
STATES = "last_hidden_state"


class _LastStates(torch.nn.Module):
    """A model of transformers with three tensors in and one out, which both exporters take."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.model = transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        return self.model(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[0]


def export(folder: Path, out: Path, calibration: Sequence[str]) -> None:
    """Write what the sides read into `out`; a runtime that is not installed is left out."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = _LastStates(folder)
    example = tuple(tokenizer(["a text", "another one"], return_tensors="pt")[name] for name in COLUMNS)
    with torch.no_grad():
        _export_onnx(model, example, out)
        try:
            _export_openvino(model, example, tokenizer, calibration, out)
        except ImportError as error:
            print(f"({error.name} is not installed: OpenVINO's sides are left out)")


def _export_onnx(model: torch.nn.Module, example: tuple[Any, ...], out: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    shape = {0: torch.export.Dim("rows"), 1: torch.export.Dim("length")}
    plain = out / "plain.onnx"
    torch.onnx.export(
        model,
        example,
        plain,
        input_names=list(COLUMNS),
        output_names=[STATES],
        dynamic_shapes=(shape,) * len(COLUMNS),
        dynamo=True,
        verbose=False,
    )
    config = model.model.config
    fused = optimizer.optimize_model(
        str(plain), model_type="bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size
    )
    fused.save_model_to_file(str(out / "fp32.onnx"))
    quantize_dynamic(out / "fp32.onnx", out / "int8.onnx", weight_type=QuantType.QInt8, per_channel=True)


def _export_openvino(
    model: torch.nn.Module, example: tuple[Any, ...], tokenizer: Any, calibration: Sequence[str], out: Path
) -> None:
    import nncf
    import openvino

    columns = dict(zip(COLUMNS, example))
    whole = openvino.convert_model(model, example_input=columns, input={name: [-1, -1] for name in COLUMNS})
    openvino.save_model(whole, out / "whole.xml", compress_to_fp16=False)

    def tokenize(text: str) -> dict[str, np.ndarray]:
        return dict(tokenizer(text, truncation=True, max_length=512, return_tensors="np").items())

    dataset = nncf.Dataset(list(calibration)[:CALIBRATION], tokenize)
    int8 = nncf.quantize(whole, dataset, model_type=nncf.ModelType.TRANSFORMER, subset_size=CALIBRATION)
    openvino.save_model(int8, out / "int8.xml")


class Runtime:
    """An opponent: transformers' tokenizer, texts sorted by length, a session, the mean of its states."""

    def __init__(self, whole: Path, exported: Path, side: str, threads: int) -> None:
        """Load `side`, such as "openvino int8"."""
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(whole)
        runtime, precision = side.split(" ")
        begin = _begin_onnxruntime if runtime == "onnxruntime" else _begin_openvino
        self.compute = begin(exported, precision, threads)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the mean states of texts in the order given, (texts, width) of float32."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]), reverse=True)
        batches = []
        for first in range(0, len(order), BATCH):
            part = [texts[index] for index in order[first : first + BATCH]]
            columns = self.tokenizer(part, padding=True, truncation=True, max_length=512, return_tensors="np")
            states = self.compute({name: columns[name] for name in COLUMNS})
            mask = columns["attention_mask"][..., None].astype(np.float32)
            batches.append((states * mask).sum(1) / mask.sum(1))
        vectors = np.empty((len(texts), batches[0].shape[1]), np.float32)
        vectors[order] = np.concatenate(batches)
        return vectors


def _begin_onnxruntime(exported: Path, precision: str, threads: int) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(exported / f"{precision}.onnx", options, ["CPUExecutionProvider"])
    return lambda columns: session.run([session.get_outputs()[0].name], columns)[0]


def _begin_openvino(exported: Path, precision: str, threads: int) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    import openvino

    hint = {"fp32": "f32", "int8": "f32", "bf16": "bf16"}[precision]
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": hint,
        "PERFORMANCE_HINT": "LATENCY",
    }
    name = "int8.xml" if precision == "int8" else "whole.xml"
    compiled = openvino.Core().compile_model(exported / name, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda columns: request.infer(columns)[0]
