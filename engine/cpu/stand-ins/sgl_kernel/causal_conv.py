"""The short causal convolution before linear attention, in torch.

Layout of the pool of windows: [slots, dim, width - 1], the newest input last (the one that SGLang uses without AMX).
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F


def _activate(x: torch.Tensor, activation: str | bool | None) -> torch.Tensor:
    if activation in (True, "silu", "swish"):
        return F.silu(x)
    assert activation in (None, False, ""), activation
    return x


def causal_conv1d_fn_cpu(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    conv_states: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    seq_lens_cpu: object = None,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    activation: str | bool | None = "silu",
    pad_slot_id: int = -1,
    **_: object,
) -> torch.Tensor:
    """Prefill of x [dim, tokens], sequence after sequence; each leaves its last window in the pool."""
    assert query_start_loc is not None
    dim, tokens = x.shape
    kernel = weight.float().reshape(dim, -1)
    past_width = kernel.shape[1] - 1
    bounds = query_start_loc.tolist()
    slots = cache_indices.tolist() if cache_indices is not None else list(range(len(bounds) - 1))
    continued = has_initial_state.tolist() if has_initial_state is not None else [False] * len(slots)
    out = x.new_zeros(tokens, dim)
    for i, (start, end) in enumerate(pairwise(bounds)):
        slot = slots[i]
        if end <= start or slot == pad_slot_id:
            continue
        if continued[i] and conv_states is not None:
            past = conv_states[slot, :, -past_width:]
        else:
            past = x.new_zeros(dim, past_width)
        inputs = torch.cat((past.to(x.dtype), x[:, start:end]), 1)
        bias32 = None if bias is None else bias.float()
        y = F.conv1d(inputs.float().unsqueeze(0), kernel.unsqueeze(1), bias32, groups=dim)[0]
        out[start:end] = _activate(y, activation).t().to(x.dtype)
        if conv_states is not None:
            conv_states[slot, :, -past_width:] = inputs[:, -past_width:].to(conv_states.dtype)
    return out.t()


def _parents(first_child: list[list[int]], next_sibling: list[list[int]], nodes: int) -> list[list[int]]:
    """The parent of each node of each request's tree; -1 for the root."""
    parents = [[-1] * nodes for _ in first_child]
    for row, children in enumerate(first_child):
        for parent in range(nodes):
            child = children[parent]
            while child != -1:
                parents[row][child] = parent
                child = next_sibling[row][child]
    return parents


def causal_conv1d_update_cpu(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | bool | None = None,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    num_accept_tokens: torch.Tensor | None = None,
    intermediate_conv_window: torch.Tensor | None = None,
    intermediate_state_indices: torch.Tensor | None = None,
    retrieve_next_token: torch.Tensor | None = None,
    retrieve_next_sibling: torch.Tensor | None = None,
    retrieve_parent_token: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    **_: object,
) -> torch.Tensor:
    """Decoding and verification of x [requests, dim] or [requests, dim, steps], along a tree where there is one."""
    assert cache_seqlens is None
    assert num_accept_tokens is None
    single = x.dim() == 2
    if single:
        x = x.unsqueeze(-1)
    count, dim, steps = x.shape
    kernel = weight.float().reshape(dim, -1)
    past_width = kernel.shape[1] - 1
    slots = conv_state_indices[:count].long() if conv_state_indices is not None else torch.arange(count)
    valid = slots >= 0
    past = conv_state[slots.clamp(min=0)][:, :, -past_width:].to(x.dtype)
    parents = None
    if retrieve_next_token is not None and retrieve_next_sibling is not None:
        # find every node's parent here, and hand it on to the recurrence
        parents = _parents(retrieve_next_token.tolist()[:count], retrieve_next_sibling.tolist(), steps)
        if retrieve_parent_token is not None:
            retrieve_parent_token.copy_(torch.tensor(parents).to(retrieve_parent_token.dtype))
    out = x.new_zeros(count, steps, dim)
    windows: list[torch.Tensor] = []
    for t in range(steps):
        if t == 0:
            before = past
        elif parents is None:
            before = windows[-1]
        else:
            above = [parents[i][t] for i in range(count)]
            before = torch.stack([past[i] if above[i] < 0 else windows[above[i]][i] for i in range(count)])
        inputs = torch.cat((before, x[:, :, t : t + 1]), 2)
        y = (inputs.float() * kernel).sum(-1)
        if bias is not None:
            y = y + bias.float()
        out[:, t] = _activate(y, activation).to(x.dtype)
        windows.append(inputs[:, :, 1:])
    if intermediate_conv_window is not None:  # verification: the slot's own window is committed later, from these
        given = intermediate_state_indices
        rows = given[:count].long() if given is not None else torch.arange(count)
        for t, window in enumerate(windows):
            intermediate_conv_window[rows[valid], t] = window[valid].to(intermediate_conv_window.dtype)
    elif steps:
        updated = conv_state[slots[valid]].clone()
        updated[:, :, -past_width:] = windows[-1][valid].to(conv_state.dtype)
        conv_state[slots[valid]] = updated
    return out[:, 0] if single else out.transpose(1, 2)
