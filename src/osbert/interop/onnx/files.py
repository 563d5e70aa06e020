"""ONNX files: written from a padded model, in float32 or with products in bytes, and opened in onnxruntime.

What a reader has to know beside the graph stands in the file's metadata, under names that begin with "osbert.".
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from osbert import __version__
from osbert.errors import UserError
from osbert.files import replace_file
from osbert.guarded import parse_json
from osbert.interop.onnx.padded import INPUTS, STATES, PaddedGraph
from osbert.interop.weight_files import require_finite

ONNX = "model.onnx"
FORM = "1"
"""The form of what osbert writes beside the graph; another one is of another version of osbert."""
READ = ("vocabulary", "length", "segments", "layers", "width", "direction")
"""Those settings of the Architecture that texts are read, and states taken, by: config.json must have the same."""
OPSET = 18
LARGEST = 2**31 - 2**24
"""Bytes that one file can hold: 2 GB, less what the graph itself may take."""
SMALL = 64
"""Products with fewer outputs than this stay in float32: a head's, which cost nothing and are what is read."""


PREFIX = re.compile(r"^.*?( : |failed:)(?!.*( : |failed:))(/\S+:\d+ .*\) (?=[A-Z]))?", re.DOTALL)
"""What stands before the reason in onnxruntime's errors: their number and kind, the file, the place in its own code."""


@dataclass(frozen=True, kw_only=True)
class OnnxGraph:
    """A file in onnxruntime: `session`, its outputs' `names`, and what a head had `learnt` beside its scores.

    `sizes`: the graph's settings of READ; `tokenizer`: the fingerprint of the one that it reads with. {} and "" where
    the file does not say it.
    """

    session: Any
    names: tuple[str, ...]
    int8: bool
    learnt: dict[str, list[Any]]
    sizes: dict[str, Any]
    tokenizer: str


def require_library(name: str) -> Any:
    """Return a library of the extra. Raises UserError that names the extra when it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f'ONNX needs the library {name}: pip install "osbert[onnx]"', code="missing-library") from error


def require_writers() -> None:
    """Raise UserError unless everything that writing and trying a file takes is there."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        require_library(name)


def write_onnx(
    model: PaddedGraph, path: Path, *, int8: bool, learnt: Mapping[str, list[Any]], tokenizer: str = ""
) -> None:
    """Write a model whose batch and length are free, whole or not at all.

    `int8`: the weights of products and the piece embeddings take a byte each; what comes in is rounded to bytes as it
    comes, by one step for a whole batch. `learnt`: what is to be kept beside the graph; `tokenizer`: the
    fingerprint of the one that goes with it. Raises UserError when a library is missing, or the model is too large for
    one file.
    """
    require_writers()
    size = 4 * sum(weight.numel() for weight in model.parameters())
    if size > LARGEST:
        raise UserError(
            f"the model has {size / 1e9:.1f} GB of weights; an ONNX file holds at most 2 GB.", code="too-large"
        )
    sizes = {name: getattr(model.backbone.architecture, name) for name in READ}
    said = {"precision": "int8" if int8 else "fp32", "learnt": json.dumps(learnt), "sizes": json.dumps(sizes)}
    replace_file(path, lambda aside: _write(model, aside, int8=int8, said={**said, "tokenizer": tokenizer}))


def open_onnx(path: Path) -> OnnxGraph:
    """Open a file that `write_onnx` wrote, to run on as many threads as torch uses.

    Raises UserError when onnxruntime is missing or cannot open the file, as when it is damaged or of a newer version
    of ONNX; when it is no such file; and, where the library onnx is there to read them, when a weight is NaN or
    infinite.
    """
    runtime = require_library("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # what is amiss is told below
    again = "Export the run again: osbert export RUN --to onnx"
    if not path.is_file():
        raise UserError(f"{path} is missing. {again}.", code="missing-file")
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of many classes with no other parent, all of them saying what the file has
        raise UserError(
            f"{path}: onnxruntime {runtime.__version__} cannot open it: {reason(error)}. {again}.", code="damaged-file"
        ) from error
    said = session.get_modelmeta().custom_metadata_map
    names = tuple(output.name for output in session.get_outputs())
    if "osbert.form" not in said or {one.name for one in session.get_inputs()} != set(INPUTS) or STATES not in names:
        raise UserError(f"{path} is an ONNX file, but none that osbert wrote. {again}.", code="wrong-format")
    if said["osbert.form"] != FORM:
        raise UserError(
            f"{path} was written by osbert {said.get('osbert.version')} in form {said['osbert.form']}; this is osbert "
            f"{__version__}, which reads form {FORM}. {again}.",
            code="wrong-format",
        )
    if importlib.util.find_spec("onnx") is not None:
        require_finite({path: _weights(path)})
    try:
        learnt, sizes = dict(parse_json(said["osbert.learnt"])), dict(parse_json(said.get("osbert.sizes", "{}")))
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(
            f"{path} is damaged: what osbert wrote beside the graph cannot be read. {again}.", code="damaged-file"
        ) from error
    return OnnxGraph(
        session=session,
        names=names,
        int8=said.get("osbert.precision") == "int8",
        learnt=learnt,
        sizes=sizes,
        tokenizer=said.get("osbert.tokenizer", ""),
    )


def _weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a graph that are floating-point numbers, by name."""
    import onnx

    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    for weight in onnx.load(path).graph.initializer:
        if weight.data_type in kinds:
            yield weight.name, torch.from_numpy(onnx.numpy_helper.to_array(weight).copy())


def reason(error: Exception) -> str:
    """Return what one of onnxruntime's errors says, without a full stop."""
    return PREFIX.sub("", str(error).strip()).rstrip(".")


def _write(model: PaddedGraph, path: Path, *, int8: bool, said: Mapping[str, str]) -> None:
    import onnx

    if int8:
        model.shrink()
    with _quiet():
        graph = _exported(model)
        if int8:
            _quantize(graph, path)
            graph = onnx.load(path)
    graph.producer_name, graph.producer_version = "osbert", __version__
    all_said = {"form": FORM, "version": __version__, **said}
    onnx.helper.set_model_props(graph, {f"osbert.{name}": value for name, value in all_said.items()})
    onnx.save(graph, path)


def _exported(model: PaddedGraph) -> Any:
    batch = torch.export.Dim("batch")
    length = torch.export.Dim("length", max=model.backbone.architecture.length)
    example = tuple(torch.ones(2, 5, dtype=torch.int64) for _ in INPUTS)
    program = torch.onnx.export(
        model.eval(),
        (example[0], torch.zeros_like(example[1]), example[2]),
        dynamo=True,
        input_names=list(INPUTS),
        output_names=list(model.names),
        opset_version=OPSET,
        dynamic_shapes=tuple({0: batch, 1: length} for _ in INPUTS),
        verbose=False,
    )
    assert program is not None
    return program.model_proto


def _quantize(graph: Any, path: Path) -> None:
    """Write a graph with its products in bytes, each column of a weight by its own step.

    The pooler and the heads stay as they are. Of the bytes 7 bits are used: processors without VNNI add up two products
    in 16 bits, which 8 could overflow.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph.graph.ClearField("value_info")  # shapes that were worked out before, and that are in the quantizer's way
    columns = {weight.name: weight.dims[-1] for weight in graph.graph.initializer if weight.dims}
    spared = [
        node.name for node in graph.graph.node if node.op_type == "MatMul" and columns.get(node.input[1], SMALL) < SMALL
    ]
    # Of sequences, not of tokens; the quantizer makes a MatMul of this name of each before it looks at any.
    spared += [f"{node.name}_MatMul" for node in graph.graph.node if node.op_type == "Gemm"]
    quantize_dynamic(
        graph,
        path,
        op_types_to_quantize=["MatMul"],
        nodes_to_exclude=spared,
        per_channel=True,
        reduce_range=True,
        weight_type=QuantType.QInt8,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Pass over what the libraries tell of themselves: of operators that are not used, and of other ways to export."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
