"""torch's AdamW without its torch.compile guards, whose imports take more than a second."""

from __future__ import annotations

from inspect import unwrap

import torch


class PlainAdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) whose methods are torch's own without their decorators.

    The decorators matter only for compiled optimisers, which osbert does not use. At the first call they import
    torch._dynamo, which takes as long as importing torch: most of the time of a small run.
    """

    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    load_state_dict = unwrap(torch.optim.AdamW.load_state_dict)
    state_dict = unwrap(torch.optim.AdamW.state_dict)
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
