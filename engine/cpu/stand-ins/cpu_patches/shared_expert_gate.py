"""The sigmoid gate of a shared expert, in torch."""

from __future__ import annotations

from typing import Any

import torch


def gate_and_multiply(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    shared_output: torch.Tensor,
    output: torch.Tensor,
    *,
    do_add: bool,
) -> None:
    """``output = sigmoid(hidden_states @ gate_weight) * shared_output``, plus ``output`` itself if ``do_add``."""
    gate = (hidden_states.float() @ gate_weight.float()).sigmoid().unsqueeze(-1)
    gated = gate * shared_output.float()
    output.copy_(gated + output.float() if do_add else gated)


def patch(module: Any) -> None:
    """Put it in place of the Triton kernel."""
    module._launch_fused_gate_sigmoid_mul = gate_and_multiply
