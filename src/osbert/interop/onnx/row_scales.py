"""int8 products with a scale for each token, in place of one for the whole batch, as onnxruntime's quantizer writes.

A scale of its own makes a token's codes independent of the other tokens of a batch, and of padding. The codes are
symmetric: round(x / scale) + 128 with scale = max |x| / 127 over the features of the token, so that 128 is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

ZERO = "osbert.zero_code"
"""The name of the code of 0, which all products have in common."""


def scale_rows(graph: Any) -> None:
    """Change each dynamic quantization of a graph (a GraphProto) to one scale a row, for products of opset 18.

    The graph is as `quantize_dynamic` writes it: DynamicQuantizeLinear, MatMulInteger, Cast, and the product with that
    of both scales.
    """
    from onnx import numpy_helper

    inputs = {node.output[1]: node.input[0] for node in graph.node if node.op_type == "DynamicQuantizeLinear"}
    # The product of an input's scale and a weight's, by its name.
    scales = {node.output[0]: tuple(node.input) for node in graph.node if node.input and node.input[0] in inputs}
    widths = {weight.name: weight.dims[0] for weight in graph.initializer if weight.dims}
    depths = {node.input[0]: widths[node.input[1]] for node in graph.node if node.op_type == "MatMulInteger"}
    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            nodes += _quantize(node.input[0], node.output[0], node.output[1], depths[node.output[0]])
        elif node.op_type == "MatMulInteger":
            node.input[2] = ZERO
            nodes.append(node)
        elif len(node.input) == 2 and node.input[1] in scales:
            scale, columns = scales[node.input[1]]
            nodes += _rescale(node.input[0], node.output[0], scale, columns, inputs[scale])
        elif not (node.output and node.output[0] in scales):
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.append(numpy_helper.from_array(np.array(128, np.uint8), ZERO))


def _quantize(values: str, codes: str, scale: str, depth: int) -> Iterator[Any]:
    """Yield the nodes from `values` (..., D) to `codes` (N, D) and their `scale` (N,), with D = `depth`."""
    from onnx.helper import make_node

    rows, largest, least = (f"{codes}.{name}" for name in ("rows", "largest", "least"))
    yield _constant(f"{codes}.shape", np.array([-1, depth]))
    yield _constant(f"{codes}.axes", np.array([1]))
    yield _constant(f"{codes}.part", np.array(1 / 127, np.float32))
    yield _constant(f"{codes}.tiny", np.array(np.finfo(np.float32).tiny, np.float32))
    yield make_node("Reshape", [values, f"{codes}.shape"], [rows])
    yield make_node("ReduceMax", [rows, f"{codes}.axes"], [largest], keepdims=0)
    yield make_node("ReduceMin", [rows, f"{codes}.axes"], [least], keepdims=0)
    yield make_node("Neg", [least], [f"{least}.size"])
    yield make_node("Max", [largest, f"{least}.size"], [f"{codes}.size"])
    yield make_node("Mul", [f"{codes}.size", f"{codes}.part"], [f"{codes}.step"])
    yield make_node("Max", [f"{codes}.step", f"{codes}.tiny"], [scale])  # a row of 0 has a scale, too
    yield make_node("Shape", [scale], [f"{codes}.count"])
    yield make_node("Expand", [ZERO, f"{codes}.count"], [f"{codes}.zeros"])
    yield make_node("QuantizeLinear", [rows, scale, f"{codes}.zeros"], [codes], axis=0)


def _rescale(product: str, result: str, scale: str, columns: str, values: str) -> Iterator[Any]:
    """Yield the nodes from a `product` (N, M) of codes to floats (..., M), by the scales of its rows and columns."""
    from onnx.helper import make_node

    yield _constant(f"{result}.axis", np.array([1]))
    yield _constant(f"{result}.rest", np.array([-1]))
    yield make_node("Mul", [product, columns], [f"{result}.columns"])
    yield make_node("Unsqueeze", [scale, f"{result}.axis"], [f"{result}.scale"])
    yield make_node("Mul", [f"{result}.columns", f"{result}.scale"], [f"{result}.rows"])
    yield make_node("Shape", [values], [f"{result}.first"], end=-1)
    yield make_node("Concat", [f"{result}.first", f"{result}.rest"], [f"{result}.shape"], axis=0)
    yield make_node("Reshape", [f"{result}.rows", f"{result}.shape"], [result])


def _constant(name: str, value: Any) -> Any:
    from onnx import numpy_helper
    from onnx.helper import make_node

    return make_node("Constant", [], [name], value=numpy_helper.from_array(value))
