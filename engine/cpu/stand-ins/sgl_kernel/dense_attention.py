"""Softmax attention over a paged KV cache, request by request, in fp32."""

from __future__ import annotations

import torch


def _check_plain(is_cross: bool, window: int | None, sinks: torch.Tensor | None) -> None:
    """Cross attention, attention sinks and sliding windows are not served here."""
    assert not is_cross
    assert sinks is None
    assert window is None or window <= 0


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float, logit_cap: float
) -> torch.Tensor:
    """Attention of q [tokens, heads, d] over k, v [context, kv heads, d].

    ``mask`` [tokens, context] is true where seen.
    """
    q, k, v = q.float().transpose(0, 1), k.float().transpose(0, 1), v.float().transpose(0, 1)
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    scores = q @ k.transpose(1, 2) * scale
    if logit_cap and logit_cap > 0:
        scores = logit_cap * torch.tanh(scores / logit_cap)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(0, 1)


def extend_attention_cpu(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float | None,
    v_scale: float | None,
    req_to_token: torch.Tensor,
    req_pool: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_lens: torch.Tensor,
    extend_starts: torch.Tensor,
    max_extend_len: int,
    scale: float,
    logit_cap: float,
    is_cross: bool,
    window: int | None,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    causal: bool,
) -> None:
    """The last ``extend_lens`` tokens of each request attend to all of it, causally or along their tree of drafts."""
    _check_plain(is_cross, window, sinks)
    requests = zip(req_pool.tolist(), seq_lens.tolist(), extend_lens.tolist(), extend_starts.tolist(), strict=False)
    for i, (row, length, new, start) in enumerate(requests):
        if new == 0:
            continue
        slots = req_to_token[row, :length].long()
        mask = None
        if tree_mask is not None:
            mask = torch.ones(new, length, dtype=torch.bool)
            mask[:, length - new :] = tree_mask.view(-1)[i * new * new : (i + 1) * new * new].view(new, new).bool()
        elif causal:
            mask = torch.arange(length)[None] <= torch.arange(length - new, length)[:, None]
        answer = _attend(q[start : start + new], k_buffer[slots], v_buffer[slots], mask, scale, logit_cap)
        out[start : start + new] = answer.to(out.dtype)


def decode_attention_cpu(
    q: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float | None,
    v_scale: float | None,
    out: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    loc: torch.Tensor,
    attention_logits: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    logit_cap: float,
    is_cross: bool,
    window: int | None,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    """One new token a request: its key and value are stored first, then it attends to all of its request."""
    _check_plain(is_cross, window, sinks)
    if k is not None and v is not None:
        k_buffer[loc.long()] = k.view(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[loc.long()] = v.view(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    for i, (row, length) in enumerate(zip(req_pool.tolist(), seq_lens.tolist(), strict=False)):
        slots = req_to_token[row, :length].long()
        out[i] = _attend(q[i : i + 1], k_buffer[slots], v_buffer[slots], None, scale, logit_cap)[0].to(out.dtype)
