"""Where the tokens of a speculative batch lie in the KV cache: copies and tables of slots, in torch.

``req_pool`` holds the row of each request in ``req_to_token``, whose columns are the slots of its tokens.
Every function writes into a tensor that it was given.
"""

from __future__ import annotations

import ctypes

import torch


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> None:
    """Copy slots ``src_loc`` to ``tgt_loc`` in every layer; all are read before any is written."""
    targets, sources = tgt_loc.tolist(), src_loc.tolist()
    for pointer, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=False):
        rows = [ctypes.string_at(pointer + slot * stride, stride) for slot in sources]
        for slot, row in zip(targets, rows, strict=False):
            ctypes.memmove(pointer + slot * stride, row, stride)


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor, accept_lens: torch.Tensor, bonus_tokens: torch.Tensor, accept_stride: int
) -> None:
    """The last accepted token of each request."""
    count = accept_lens.numel()
    last = torch.arange(count) * accept_stride + accept_lens.long() - 1
    bonus_tokens[:count] = accept_tokens.flatten()[last].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """The slots of all accepted tokens, one after the other."""
    accepted = accept_index.flatten()
    accepted = accepted[accepted > -1].long()
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc[accepted].to(accept_out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out: torch.Tensor,
    pool_len: int,
    topk: int,
    columns: int,
) -> None:
    """The slots that follow each request's sequence, ``topk * columns`` of them."""
    each = topk * columns
    for i, (row, length) in enumerate(zip(req_pool.tolist(), seq_lens.tolist(), strict=False)):
        out[i * each : (i + 1) * each] = req_to_token[row, length : length + each].to(out.dtype)


def assign_extend_cache_locs_cpu(
    req_pool: torch.Tensor,
    req_to_token: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
    out: torch.Tensor,
    pool_len: int,
) -> None:
    """The slots from ``start`` to ``end`` of each request, one request after the other."""
    place = 0
    for row, first, last in zip(req_pool.tolist(), start.tolist(), end.tolist(), strict=False):
        out[place : place + last - first] = req_to_token[row, first:last].to(out.dtype)
        place += last - first


def assign_req_to_token_pool_cpu(
    req_pool: torch.Tensor,
    req_to_token: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
    loc: torch.Tensor,
    pool_len: int,
) -> None:
    """The reverse: write the slots ``loc`` into ``start`` to ``end`` of each request."""
    place = 0
    for row, first, last in zip(req_pool.tolist(), start.tolist(), end.tolist(), strict=False):
        req_to_token[row, first:last] = loc[place : place + last - first].to(req_to_token.dtype)
        place += last - first


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    starts: torch.Tensor,
    lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Shift each request's tokens left by one and put its new token last (or at ``select_index``)."""
    new_tokens = topk_index.flatten().tolist()
    places = None if select_index is None else select_index.tolist()
    for i, (start, length) in enumerate(zip(starts.tolist(), lens.tolist(), strict=False)):
        if length > 0:
            input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
            input_ids[places[i] if places is not None else start + length - 1] = new_tokens[i]


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor, req_pool: torch.Tensor, seq_lens: torch.Tensor, topk: int, steps: int, pool_len: int
) -> torch.Tensor:
    """A table of slots for each of the ``topk`` branches of a request, its own draft slots right after the sequence."""
    rows = req_to_token[req_pool.long()].repeat_interleave(topk, 0).clone()
    if topk > 1:
        for i, (row, length) in enumerate(zip(req_pool.tolist(), seq_lens.tolist(), strict=False)):
            for branch in range(topk):
                slots = req_to_token[row, length + branch * steps : length + (branch + 1) * steps]
                rows[i * topk + branch, length : length + steps] = slots
    return rows
