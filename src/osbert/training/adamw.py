"""torch's AdamW without its guards against torch.compile, which import over a second's worth of modules."""

from __future__ import annotations

from inspect import unwrap

import torch


class PlainAdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) whose methods are torch's own, taken out of their decorators.

    The decorators matter only to an optimiser that is compiled, which osbert's never is. At the first call they import
    torch._dynamo, which takes as long as importing torch: most of what a small run takes in all.
    """

    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    load_state_dict = unwrap(torch.optim.AdamW.load_state_dict)
    state_dict = unwrap(torch.optim.AdamW.state_dict)
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
