"""The gated delta net, in torch, written from its mathematics.

Layout of the pool of states: [slots, value heads, V, K]. Recurrence of one value head, with S of [K, V]:

    S_t = e^{g_t} S_{t-1} + k_t u_t^T
    u_t = beta_t (v_t - e^{g_t} S_{t-1}^T k_t)
    o_t = S_t^T q_t / sqrt(K)
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F

CHUNK = 64  # tokens computed in closed form at a time; SGLang caches states at the same boundaries


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def _by_head(x: torch.Tensor, value_heads: int) -> torch.Tensor:
    """[tokens, heads, d] to [value heads, tokens, d] in fp32, key heads repeated."""
    x = x.float()
    if x.shape[1] != value_heads:
        x = x.repeat_interleave(value_heads // x.shape[1], 1)
    return x.transpose(0, 1)


def _log_decay(
    A_log: torch.Tensor, a: torch.Tensor, dt_bias: torch.Tensor, beta: float = 1.0, threshold: float = 20.0
) -> torch.Tensor:
    return -A_log.float().exp() * F.softplus(a.float() + dt_bias.float(), beta, threshold)


def fused_gdn_gating_cpu(
    A_log: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dt_bias: torch.Tensor, *_: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """(g, beta) of every token, with a leading dimension of one."""
    return _log_decay(A_log, a, dt_bias).unsqueeze(0), b.float().sigmoid().unsqueeze(0)


def _chunk(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One chunk in closed form: q, k [heads, C, K]; v [heads, C, V]; g, beta [heads, C]; state [heads, K, V].

    Returns the outputs and the state after the chunk.
    """
    total = g.cumsum(-1)
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).tril().exp().tril()  # e^{G_t - G_i} for i <= t
    from_start = total.exp().unsqueeze(-1)
    coupling = (beta.unsqueeze(-1) * decay * (k @ k.transpose(1, 2))).tril(-1)
    right = beta.unsqueeze(-1) * (v - from_start * (k @ state))
    identity = torch.eye(k.shape[1], dtype=k.dtype)
    u = torch.linalg.solve_triangular(identity + coupling, right, upper=False, unitriangular=True)
    out = from_start * (q @ state) + (decay * (q @ k.transpose(1, 2))) @ u
    state = from_start[:, -1:] * state + (decay[:, -1].unsqueeze(-1) * k).transpose(1, 2) @ u
    return out, state


def chunk_gated_delta_rule_cpu(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    head_first: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    initial_state_indices: torch.Tensor | None = None,
    scale: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Prefill: (outputs, last state of each sequence, state before each chunk); the pool of states is updated."""
    assert not head_first
    assert q.shape[0] == 1
    tokens, value_heads, v_dim = v.shape[1:]
    k_dim, dtype = k.shape[-1], v.dtype
    q, k, v = _by_head(q[0], value_heads), _by_head(k[0], value_heads), v[0].float().transpose(0, 1)
    if use_qk_l2norm_in_kernel:
        q, k = _unit(q), _unit(k)
    q = q * (k_dim**-0.5 if scale is None else scale)
    g, beta = g.reshape(-1, value_heads).float().t(), beta.reshape(-1, value_heads).float().t()
    bounds = cu_seqlens.tolist() if cu_seqlens is not None else [0, tokens]
    slots = initial_state_indices.tolist() if initial_state_indices is not None else range(len(bounds) - 1)
    out = torch.zeros(value_heads, tokens, v_dim)
    before, last = [], []
    for i, (start, end) in enumerate(pairwise(bounds)):
        slot = slots[i]
        state = torch.zeros(value_heads, k_dim, v_dim)
        if initial_state is not None and slot >= 0:
            state = initial_state[slot].float().transpose(1, 2).contiguous()
        for first in range(start, end, CHUNK):
            part = slice(first, min(first + CHUNK, end))
            before.append(state.transpose(1, 2).to(torch.float32))
            out[:, part], state = _chunk(q[:, part], k[:, part], v[:, part], g[:, part], beta[:, part], state)
        if initial_state is not None and slot >= 0 and end > start:
            initial_state[slot] = state.transpose(1, 2).to(initial_state.dtype)
        last.append(state.transpose(1, 2))
    states = torch.stack(before).unsqueeze(0) if before else None
    return out.transpose(0, 1).unsqueeze(0).to(dtype), torch.stack(last), states


def fused_sigmoid_gating_delta_rule_update_cpu(
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    initial_state_source: torch.Tensor,
    initial_state_indices: torch.Tensor,
    cu_seqlens: torch.Tensor,
    use_qk_l2norm_in_kernel: bool = True,
    softplus_beta: float = 1.0,
    softplus_threshold: float = 20.0,
    is_kda: bool = False,
    disable_state_update: bool = False,
    intermediate_states_buffer: torch.Tensor | None = None,
    intermediate_state_indices: torch.Tensor | None = None,
    cache_steps: int | None = None,
    retrieve_parent_token: torch.Tensor | None = None,
    scale: float | None = None,
    **_: object,
) -> torch.Tensor:
    """Decoding and verification: a few steps of the recurrence for every request, along its tree where it has one.

    The state after each step is left in ``intermediate_states_buffer``, from which verification commits the right one.
    """
    assert not is_kda
    value_heads, v_dim = v.shape[-2:]
    key_heads, k_dim = k.shape[-2:]
    dtype = v.dtype
    count = cu_seqlens.numel() - 1
    lengths = (cu_seqlens[1:] - cu_seqlens[:-1]).tolist()
    steps = max(lengths, default=0)
    assert all(length == steps for length in lengths), "ragged batches are not served by this stand-in"
    q = q.reshape(count, steps, key_heads, k_dim).float()
    k = k.reshape(count, steps, key_heads, k_dim).float()
    v = v.reshape(count, steps, value_heads, v_dim).float()
    if use_qk_l2norm_in_kernel:
        q, k = _unit(q), _unit(k)
    q = q * (k_dim**-0.5 if scale is None else scale)
    if key_heads != value_heads:
        q, k = q.repeat_interleave(value_heads // key_heads, 2), k.repeat_interleave(value_heads // key_heads, 2)
    decay = _log_decay(A_log, a.reshape(count, steps, value_heads), dt_bias, softplus_beta, softplus_threshold).exp()
    beta = b.reshape(count, steps, value_heads).float().sigmoid()
    slots = initial_state_indices[:count].long()
    valid = slots >= 0
    start = initial_state_source[slots.clamp(min=0)].float()  # [requests, value heads, V, K]
    out = torch.zeros(count, steps, value_heads, v_dim)
    parents = retrieve_parent_token.tolist() if retrieve_parent_token is not None else None
    seen: list[torch.Tensor] = []
    state = start
    for t in range(steps):
        if parents is not None and t > 0:
            above = [parents[i][t] for i in range(count)]
            state = torch.stack([start[i] if above[i] < 0 else seen[above[i]][i] for i in range(count)])
        key, query = k[:, t].unsqueeze(-1), q[:, t].unsqueeze(-1)
        state = state * decay[:, t, :, None, None]
        u = beta[:, t].unsqueeze(-1) * (v[:, t] - (state @ key).squeeze(-1))
        state = state + u.unsqueeze(-1) * key.transpose(2, 3)
        out[:, t] = (state @ query).squeeze(-1)
        seen.append(state)
    if intermediate_states_buffer is not None:
        given = intermediate_state_indices
        rows = given[:count].long() if given is not None else torch.arange(count)
        for t, after in enumerate(seen):
            intermediate_states_buffer[rows[valid], t] = after[valid].to(intermediate_states_buffer.dtype)
    if not disable_state_update and steps:
        initial_state_source[slots[valid]] = state[valid].to(initial_state_source.dtype)
    return out.reshape(1, count * steps, value_heads, v_dim).to(dtype)
