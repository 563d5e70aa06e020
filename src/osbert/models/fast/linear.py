"""Linear layers for flat tokens, whose number differs in every batch; products choose their number of threads.

On CPUs oneDNN computes products in bf16. It compiles a kernel for each new shape and caches a thousand of them, which
is slow and takes gigabytes if every batch has another shape. So in bf16, inside the product only, rows of 0 are added
up to a multiple of ROWS.

MKL computes products in float32. It uses AVX-512 on Intel CPUs only. On AMD CPUs with AVX-512, oneDNN computes float32
products of many rows in half the time, so it is used there. Both libraries rearrange the weight for each product, which
takes a third of the time of a short text: a model that predicts keeps the rearranged weights of such products.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

from osbert.models.fast.threads import threads_for

ROWS = 128
"""The number of rows is made a multiple of this."""
MANY = 2 * ROWS
"""Fewest rows for which oneDNN in float32 saves more than the padding rows cost."""

FEW = 128
"""Most rows of a product for which rearranging its weight takes a tenth of the time or more."""
LARGE = 2**16
"""Fewest elements of a weight that is kept rearranged."""

_rearranged = WeakIdKeyDictionary()
# torch's fused optimisers change weights but not their versions.
register_optimizer_step_post_hook(lambda *_: _rearranged.clear())


class Linear(nn.Linear):
    """torch's linear layer, computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, outputs) from (N, inputs)."""
        return linear(input, self.weight, self.bias)


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return (N, outputs) from `rows` (N, inputs), `weight` (outputs, inputs) and `bias` (outputs,)."""
    precision = precision_of(rows)
    if torch.is_grad_enabled() and rows.device.type == "cpu" and not torch.compiler.is_compiling():
        # _Product converts by itself; autocast inside it would convert again.
        with torch.autocast("cpu", enabled=False):
            product: Tensor = _Product.apply(rows, weight, bias, precision)
        return product
    if not is_compiled(rows.device.type, precision):
        return functional.linear(rows, weight, bias) if torch.is_grad_enabled() else multiply(rows, weight, bias)
    return functional.linear(convert_rows(rows, precision), weight, bias)[: len(rows)]


class _Product(torch.autograd.Function):
    """The product on CPUs and its gradients, each with a suitable number of threads."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        rows, weight, bias, precision = given
        added = None if bias is None else bias.to(precision)
        # Saved in the precision of the products, so that backward converts nothing a second time.
        columns = convert_rows(rows, precision), weight.to(precision)
        ctx.save_for_backward(*columns)
        ctx.kinds = rows.dtype, weight.dtype, None if bias is None else bias.dtype
        with threads_for(len(rows) * weight.numel()):
            return multiply(*columns, added)[: len(rows)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *towards: Any) -> Any:
        rows, weight = ctx.saved_tensors
        # The padding rows have slope 0 and so add nothing to the gradients of weight and bias.
        count, slope = len(towards[0]), convert_rows(towards[0], rows.dtype)
        gradients: list[Tensor | None] = [None] * 4
        with threads_for(len(rows) * weight.numel()):
            if ctx.needs_input_grad[0]:
                gradients[0] = multiply(slope, weight.t())[:count].to(ctx.kinds[0])
            if ctx.needs_input_grad[1]:
                gradients[1] = (slope.t() @ rows).to(ctx.kinds[1])
            if ctx.needs_input_grad[2]:
                gradients[2] = slope.sum(0).to(ctx.kinds[2])
        return tuple(gradients)


def multiply(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return rows @ weight.T + bias (N, outputs), all of one precision, without gradients, by the fastest library."""
    # For other precisions and other devices, torch's own choice of library is kept.
    if torch.compiler.is_compiling() or rows.dtype != torch.float32 or rows.device.type != "cpu" or not spares_time():
        return functional.linear(rows, weight, bias)
    count = len(rows)
    if count >= MANY:
        step = ROWS
    elif 0 < count <= FEW and weight.numel() >= LARGE and is_constant(weight):
        # oneDNN keeps half a megabyte for each number of rows: these are at most 40 numbers, a sixteenth apart.
        step, weight = max(1, 1 << count.bit_length() >> 4), rearrange(weight)
    else:
        return functional.linear(rows, weight, bias)
    missing = -count % step
    padded = functional.pad(rows, (0, 0, 0, missing)) if missing else rows
    product: Tensor = torch.ops.mkldnn._linear_pointwise(padded, weight, bias, "none", [], "")
    return product[:count]


def is_constant(weight: Tensor) -> bool:
    """Return whether a weight is a model's own, which predicts now, so that the next call will have it, too."""
    return torch.is_inference_mode_enabled() and type(weight) is nn.Parameter and not weight.is_inference()


def rearrange(weight: Tensor) -> Tensor:
    """Return a weight in oneDNN's own order: the one of the call before, unless the weight has changed since."""
    state = weight_state(weight)
    known, tensor = _rearranged.get(weight, (None, None))
    if known != state:
        tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        _rearranged[weight] = state, tensor
    return tensor


def weight_state(weight: Tensor) -> tuple[int, int, bytes]:
    """Return what differs once a weight has changed: its address, its version, and a number of each row and column.

    Other weights may get the address, and a change through `weight.data` or an array of numpy leaves the version. It
    takes about a hundredth of the time of a product. What changes single numbers of a model must change the parameter
    itself, under torch.no_grad.
    """
    numbers = weight.detach().reshape(-1)[:: min(weight.shape) + 1 if weight.ndim > 1 else 1]
    version = 0 if weight.is_inference() else weight._version
    return weight.data_ptr(), version, numbers.float().cpu().numpy().tobytes()


@cache
def spares_time() -> bool:
    """Return whether oneDNN is faster in float32 than MKL on this CPU: an AMD CPU with AVX-512."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.cpu, "get_capabilities")):
        return False
    known = torch.cpu.get_capabilities()
    return str(known.get("cpu_name")).startswith("AMD") and bool(known.get("avx512_f"))


def precision_of(rows: Tensor) -> torch.dtype:
    """Return the precision of products with `rows`: autocast's if enabled, else their own."""
    kind = rows.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else rows.dtype


def convert_rows(rows: Tensor, precision: torch.dtype) -> Tensor:
    """Return `rows` (N, D) in a precision, with rows of 0 up to a multiple of ROWS if code is compiled for shapes."""
    missing = -len(rows) % ROWS if is_compiled(rows.device.type, precision) else 0
    if not missing:
        return rows.to(precision)
    if torch.is_grad_enabled():  # only without _Product: compiled layers
        return functional.pad(rows.to(precision), (0, 0, 0, missing))
    # Converted on the way into the larger matrix: functional.pad would fill all of it first, and copy once more.
    padded = rows.new_empty(len(rows) + missing, rows.shape[1], dtype=precision)
    padded[: len(rows)] = rows
    padded[len(rows) :] = 0
    return padded


def is_compiled(device: str, precision: torch.dtype) -> bool:
    """Return whether products in this precision are compiled for each shape on this type of device."""
    return device == "cpu" and precision == torch.bfloat16
