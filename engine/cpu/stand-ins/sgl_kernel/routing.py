"""The choice of experts: softmax over all of them, then the best few."""

from __future__ import annotations

import torch


def topk_softmax_cpu(
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    topk: int,
    renormalize: bool,
    num_token_non_padded: torch.Tensor | None = None,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights, expert numbers) of each token."""
    weights, experts = gating_output.float().softmax(-1).topk(topk, -1)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights, experts.to(torch.int32)
