"""Copies between the pools of linear-attention states, in torch: commits after verification, and tracking."""

from __future__ import annotations

from typing import Any

import torch


def commit(
    destination: torch.Tensor,
    source: torch.Tensor,
    destination_rows: torch.Tensor,
    steps: torch.Tensor,
    source_rows: torch.Tensor | None = None,
) -> None:
    """Commit the chosen step of each request; a step below 0 commits nothing.

    ``destination`` is [layers, slots, ...], ``source`` [layers, rows, steps, ...].
    """
    if steps.numel() == 0 or destination.numel() == 0:
        return
    slots, chosen = destination_rows.long(), steps.long()
    rows = torch.arange(chosen.numel()) if source_rows is None else source_rows.long()
    valid = (chosen >= 0) & (chosen < source.shape[2])
    valid &= (slots >= 0) & (slots < destination.shape[1]) & (rows >= 0) & (rows < source.shape[1])
    if valid.any():
        destination[:, slots[valid]] = source[:, rows[valid], chosen[valid]].to(destination.dtype)


def commit_all(
    caches: Any,
    rows: torch.Tensor,
    last: torch.Tensor,
    track_rows: torch.Tensor | None,
    track_steps: torch.Tensor,
    src_indices_raw: torch.Tensor | None = None,
) -> None:
    """Commit the recurrent state and every convolution window, and the tracked copies where there are any."""
    pools = [
        (caches.temporal, caches.intermediate_ssm),
        *zip(caches.conv, caches.intermediate_conv_window, strict=False),
    ]
    for destination, source in pools:
        if destination.numel() == 0:
            continue
        commit(destination, source, rows, last, src_indices_raw)
        if track_rows is not None:
            commit(destination, source, track_rows, track_steps, src_indices_raw)


def _tracked(
    source: torch.Tensor, mask: torch.Tensor, destination: torch.Tensor, batch_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(from, to) slots of the requests that are tracked and have both."""
    on = mask[:batch_size].bool()
    here, there = source[:batch_size][on].long(), destination[:batch_size][on].long()
    keep = (here >= 0) & (there >= 0)
    return here[keep], there[keep]


def track(
    conv: torch.Tensor,
    ssm: torch.Tensor,
    src: torch.Tensor,
    mask: torch.Tensor,
    dst: torch.Tensor,
    batch_size: int,
    check_freed_slots: bool = False,
) -> None:
    """Copy the states of tracked requests to their tracking slots, for one layer."""
    here, there = _tracked(src, mask, dst, batch_size)
    if here.numel():
        conv[there] = conv[here]
        ssm[there] = ssm[here]


def track_all_layers(
    conv: torch.Tensor,
    ssm: torch.Tensor,
    src: torch.Tensor,
    mask: torch.Tensor,
    dst: torch.Tensor,
    batch_size: int,
    check_freed_slots: bool = False,
) -> None:
    """Copy the states of tracked requests to their tracking slots, for all layers at once."""
    here, there = _tracked(src, mask, dst, batch_size)
    if here.numel():
        conv[:, there] = conv[:, here]
        ssm[:, there] = ssm[:, here]


def patch(module: Any) -> None:
    """Put them in place of the Triton kernels."""
    module.fused_mamba_state_scatter_with_mask = commit
    module.fused_conv_window_scatter_with_mask = commit
    module.scatter_mamba_states_after_mtp_verify = commit_all
    module.track_mamba_states_if_needed = track
    module.track_mamba_states_all_layers = track_all_layers
