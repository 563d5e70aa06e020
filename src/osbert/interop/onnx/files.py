"""ONNX files: written from a padded model, in float32 or with int8 products, and opened in onnxruntime.

Further facts are in the file's metadata, under names that begin with "osbert.".

Before onnxruntime opens a file it is checked: no graph within a node, no functions. int8 products get a scale for each
token, in place of one for the whole batch, as onnxruntime's quantizer writes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import mmap
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osbert import __version__
from osbert.errors import UserError
from osbert.files import replace_file
from osbert.guarded import parse_json
from osbert.interop.files.weight_files import require_finite
from osbert.interop.onnx.padded import INPUTS, STATES, PaddedGraph
from osbert.models.contract import Sizes

FORM = "1"
"""The version of the metadata's format; files with another one were written by another version of osbert."""
READ = ("vocabulary", "length", "segments", "layers", "width", "direction")
"""The settings that decide how texts are encoded and states are read. config.json must agree."""
OPSET = 20
"""The first one in which GELU is a single node."""
LARGEST = 2**31 - 2**24
"""Most bytes of weights in one file: 2 GB (protobuf's limit), less room for the graph."""
SMALL = 64
"""Products with fewer outputs than this stay in float32: those of heads, which are cheap and decide the scores."""


PREFIX = re.compile(r"^.*?( : |failed:)(?!.*( : |failed:))(/\S+:\d+ .*\) (?=[A-Z]))?", re.DOTALL)
"""The part of onnxruntime's errors before the reason: code, kind, file, and position in its source."""


@dataclass(frozen=True, kw_only=True)
class OnnxGraph:
    """A file in onnxruntime: `session`, the `names` of its outputs, and the head's `learnt` values for decoding.

    `sizes`: the settings of READ; `tokenizer`: the fingerprint of its tokenizer. {} and "" if the file has none.
    """

    session: Any
    names: tuple[str, ...]
    int8: bool
    learnt: dict[str, list[Any]]
    sizes: dict[str, Any]
    tokenizer: str


def encoding_sizes(sizes: Sizes) -> dict[str, Any]:
    """Return the settings of READ by name."""
    return {name: getattr(sizes, name) for name in READ}


def require_library(name: str) -> Any:
    """Import and return a library of the extra "onnx". Raises UserError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f'ONNX needs the library {name}: pip install "osbert[onnx]"', code="missing-library") from error


def require_writers() -> None:
    """Raise UserError unless all libraries for writing and testing a file are installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        require_library(name)


def write_onnx(
    model: PaddedGraph, path: Path, *, int8: bool, learnt: Mapping[str, list[Any]], tokenizer: str = ""
) -> None:
    """Write a model with dynamic batch size and length, atomically.

    `int8`: weights of products and piece embeddings are stored in a byte each, and inputs of products are quantized
    dynamically, with a scale for each token. `learnt`: values for decoding, stored as metadata; `tokenizer`: the
    fingerprint of the tokenizer. Raises UserError if a library is missing, or the model is too large for one file.
    """
    require_writers()
    size = 4 * sum(weight.numel() for weight in model.parameters())
    if size > LARGEST:
        raise UserError(
            f"the model has {size / 1e9:.1f} GB of weights; an ONNX file holds at most 2 GB.", code="too-large"
        )
    sizes = encoding_sizes(model.backbone.architecture)
    metadata = {"precision": "int8" if int8 else "fp32", "learnt": json.dumps(learnt), "sizes": json.dumps(sizes)}
    replace_file(path, lambda aside: _write(model, aside, int8=int8, metadata={**metadata, "tokenizer": tokenizer}))


def open_onnx(path: Path) -> OnnxGraph:
    """Open a file that `write_onnx` wrote, to run on as many threads as torch uses.

    Raises UserError if onnxruntime is missing or cannot open the file (damaged, or a newer version of ONNX), if osbert
    did not write it or it has loops, branches or functions, and, provided that the library onnx is installed, if a
    weight is NaN or infinite.
    """
    runtime = require_library("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # the errors below say what is wrong
    again = "Export the run again: osbert export RUN --to onnx"
    if not path.is_file():
        raise UserError(f"{path} is missing. {again}.", code="missing-file")
    try:
        if found := find_hostile(path):
            raise UserError(f"{path} was not written by osbert: {found}. {again}.", code="wrong-format")
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except UserError:
        raise
    except Exception as error:  # of many classes with no other parent, all of them saying what the file has
        raise UserError(
            f"{path}: onnxruntime {runtime.__version__} cannot open it: {reason(error)}. {again}.", code="damaged-file"
        ) from error
    meta = session.get_modelmeta().custom_metadata_map
    names = tuple(output.name for output in session.get_outputs())
    if "osbert.form" not in meta or {node.name for node in session.get_inputs()} != set(INPUTS) or STATES not in names:
        raise UserError(f"{path} is an ONNX file that osbert did not write. {again}.", code="wrong-format")
    if meta["osbert.form"] != FORM:
        raise UserError(
            f"{path} was written by osbert {meta.get('osbert.version')} in form {meta['osbert.form']}; this is osbert "
            f"{__version__}, which reads form {FORM}. {again}.",
            code="wrong-format",
        )
    if importlib.util.find_spec("onnx") is not None:
        require_finite({path: _weights(path)})
    try:
        learnt, sizes = dict(parse_json(meta["osbert.learnt"])), dict(parse_json(meta.get("osbert.sizes", "{}")))
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged: its metadata cannot be read. {again}.", code="damaged-file") from error
    return OnnxGraph(
        session=session,
        names=names,
        int8=meta.get("osbert.precision") == "int8",
        learnt=learnt,
        sizes=sizes,
        tokenizer=meta.get("osbert.tokenizer", ""),
    )


def _weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a graph that are floating-point numbers, by name."""
    import onnx

    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    for weight in onnx.load(path).graph.initializer:
        if weight.data_type in kinds:
            yield weight.name, torch.from_numpy(onnx.numpy_helper.to_array(weight).copy())


def reason(error: Exception) -> str:
    """Return the reason in one of onnxruntime's errors, without a full stop."""
    return PREFIX.sub("", str(error).strip()).rstrip(".")


def _write(model: PaddedGraph, path: Path, *, int8: bool, metadata: Mapping[str, str]) -> None:
    import onnx

    if int8:
        model.shrink()
    with _quiet():
        batch = torch.export.Dim("batch")
        length = torch.export.Dim("length", max=model.backbone.architecture.length)
        # Sizes above 1: the exporter would take a size of 1 for a constant.
        example = torch.ones(2, 5, dtype=torch.int64)
        program = torch.onnx.export(
            model.eval(),
            (example, torch.zeros_like(example), example.clone()),
            dynamo=True,
            input_names=list(INPUTS),
            output_names=list(model.names),
            opset_version=OPSET,
            dynamic_shapes=tuple({0: batch, 1: length} for _ in INPUTS),
            verbose=False,
        )
        assert program is not None
        graph: Any = program.model_proto
        if int8:
            _quantize(graph, path)
            graph = onnx.load(path)
    # The exporter notes which lines of code made a node and a value, with their paths on this machine.
    for noted in (*graph.graph.node, *graph.graph.value_info, *graph.graph.output, *graph.graph.initializer):
        noted.ClearField("metadata_props")
    graph.graph.ClearField("metadata_props")
    graph.producer_name, graph.producer_version = "osbert", __version__
    all_said = {"form": FORM, "version": __version__, **metadata}
    onnx.helper.set_model_props(graph, {f"osbert.{name}": value for name, value in all_said.items()})
    onnx.save(graph, path)


def _quantize(graph: Any, path: Path) -> None:
    """Write a graph with int8 products, with a scale for each column of a weight and each row of an input.

    The pooler and the heads stay in float32. Weights use 7 of the 8 bits: processors without VNNI add two products in
    16 bits, which could overflow with 8.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph.graph.ClearField("value_info")  # inferred shapes, which the quantizer stumbles over
    # The number of outputs of each weight; nodes whose input is no weight get SMALL and are not spared.
    columns = {weight.name: weight.dims[-1] for weight in graph.graph.initializer if weight.dims}
    spared = [
        node.name for node in graph.graph.node if node.op_type == "MatMul" and columns.get(node.input[1], SMALL) < SMALL
    ]
    # Gemm nodes multiply sequences, not tokens. The quantizer first converts each to a MatMul of this name.
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
    small = onnx.load(path)
    scale_rows(small.graph)
    onnx.save(small, path)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings and log messages of the export libraries."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


NODES = 1_000_000
"""Most fields of nodes; a node has about ten, a model of a hundred layers has 5,000 nodes."""
GRAPH, FUNCTIONS = 7, 25
"""Fields of a ModelProto (onnx.proto3)."""
NODE, ATTRIBUTE = 1, 5
"""Fields of a GraphProto and of a NodeProto."""
GRAPHS_WITHIN = (6, 11)
"""Fields of an AttributeProto with a graph, and with several."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf."""

Part = tuple[int, int]
"""The first byte of a message, and the one after its last."""


def find_hostile(path: Path) -> str:
    """Return what a graph has that none of osbert's has: graphs within nodes, functions, far too many nodes; or "".

    Raises ValueError if the file is no ONNX file.
    """
    if not path.stat().st_size:
        raise ValueError("it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        seen = 0
        for field, graph in _fields(content, (0, len(content))):
            if field == FUNCTIONS:
                return "it has functions"
            nodes = (part for number, part in _fields(content, graph) if number == NODE) if field == GRAPH else ()
            for node in nodes:
                for number, part in _fields(content, node):
                    seen += 1
                    if seen > NODES:
                        return f"its nodes have more than {NODES:,} fields"
                    if number == ATTRIBUTE and any(one in GRAPHS_WITHIN for one, _ in _fields(content, part)):
                        return "a node has a graph of its own, as Loop, Scan and If have"
    return ""


def _fields(content: mmap.mmap, part: Part) -> Iterator[tuple[int, Part]]:
    """Yield the number of each field of a message, and its bytes. Raises ValueError where they are no message."""
    start, end = part
    while start < end:
        key, start = _number(content, start, end)
        wire = key & 7
        if wire == VARINT:
            last = _number(content, start, end)[1]
        elif wire == BYTES:
            length, start = _number(content, start, end)
            last = start + length
        elif wire in (FIXED64, FIXED32):
            last = start + (8 if wire == FIXED64 else 4)
        else:
            raise ValueError("it is not an ONNX file")
        if last > end:
            raise ValueError("it is truncated, or not an ONNX file")
        yield key >> 3, (start, last)
        start = last


def _number(content: mmap.mmap, start: int, end: int) -> tuple[int, int]:
    """Return a varint, seven bits a byte with the lowest first, and the index after it."""
    value = 0
    for shift, index in enumerate(range(start, min(end, start + 10))):
        value |= (content[index] & 0x7F) << (7 * shift)
        if content[index] < 0x80:
            return value & (2**64 - 1), index + 1
    raise ValueError("it is truncated, or not an ONNX file")


ZERO = "osbert.zero_code"
"""The name of the code of 0, which all products have in common."""
CONSTANTS = {
    "osbert.one": np.array(1, np.float32),
    "osbert.part": np.array(1 / 127, np.float32),
    "osbert.tiny": np.array(np.finfo(np.float32).tiny, np.float32),
    "osbert.axis": np.array([-1]),
    ZERO: np.array(128, np.uint8),
}
"""The operands that all quantized products have in common, by name."""


def scale_rows(graph: Any) -> None:
    """Change each dynamic quantization of a graph (a GraphProto) to one scale a row.

    The graph is as `quantize_dynamic` writes it: DynamicQuantizeLinear, MatMulInteger, Cast, and the product with that
    of both scales.
    """
    from onnx import numpy_helper
    from onnx.helper import make_node

    quantized = {node.output[1] for node in graph.node if node.op_type == "DynamicQuantizeLinear"}
    # The product of an input's scale and a weight's, by its name.
    scales = {node.output[0]: tuple(node.input) for node in graph.node if node.input and node.input[0] in quantized}
    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            nodes += _quantize_rows(node.input[0], node.output[0], node.output[1])
        elif node.op_type == "MatMulInteger":
            node.input[2] = ZERO
            nodes.append(node)
        elif len(node.input) == 2 and node.input[1] in scales:
            scale, columns = scales[node.input[1]]
            nodes.append(make_node("Mul", [node.input[0], columns], [f"{node.output[0]}.columns"]))
            nodes.append(make_node("Mul", [f"{node.output[0]}.columns", scale], [node.output[0]]))
        elif not (node.output and node.output[0] in scales):
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(number, name) for name, number in CONSTANTS.items())


def _quantize_rows(values: str, codes: str, scale: str) -> Iterator[Any]:
    """Yield the nodes from `values` (..., D) to `codes` (..., D) and the `scale` (..., 1) of each row.

    Few nodes: of a short text each takes longer than its work.
    """
    from onnx.helper import make_node

    yield make_node("Abs", [values], [f"{codes}.sizes"])
    yield make_node("ReduceMax", [f"{codes}.sizes", "osbert.axis"], [f"{codes}.size"])
    yield make_node("Mul", [f"{codes}.size", "osbert.part"], [f"{codes}.step"])
    yield make_node("Max", [f"{codes}.step", "osbert.tiny"], [scale])  # a row of 0 has a scale, too
    yield make_node("Div", [values, scale], [f"{codes}.steps"])
    yield make_node("QuantizeLinear", [f"{codes}.steps", "osbert.one", ZERO], [codes])
