"""ONNX files: written from a padded model, in float32 or with int8 products, and opened in onnxruntime.

Further facts are in the file's metadata, under names that begin with "osbert.".
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
from osbert.interop.onnx.graph_checks import find_hostile
from osbert.interop.onnx.padded import INPUTS, STATES, PaddedGraph
from osbert.interop.onnx.row_scales import scale_rows
from osbert.interop.weight_files import require_finite

ONNX = "model.onnx"
FORM = "1"
"""The version of the metadata's format; files with another one were written by another version of osbert."""
READ = ("vocabulary", "length", "segments", "layers", "width", "direction")
"""The settings of the Architecture that decide how texts are encoded and states are read. config.json must agree."""
OPSET = 18
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
    sizes = {name: getattr(model.backbone.architecture, name) for name in READ}
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
        raise UserError(f"{path} is an ONNX file, but none that osbert wrote. {again}.", code="wrong-format")
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
        raise UserError(
            f"{path} is damaged: what osbert wrote beside the graph cannot be read. {again}.", code="damaged-file"
        ) from error
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
        graph = _export(model)
        if int8:
            _quantize(graph, path)
            graph = onnx.load(path)
    graph.producer_name, graph.producer_version = "osbert", __version__
    all_said = {"form": FORM, "version": __version__, **metadata}
    onnx.helper.set_model_props(graph, {f"osbert.{name}": value for name, value in all_said.items()})
    onnx.save(graph, path)


def _export(model: PaddedGraph) -> Any:
    batch = torch.export.Dim("batch")
    length = torch.export.Dim("length", max=model.backbone.architecture.length)
    # Sizes above 1: the exporter would take a size of 1 for a constant.
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
