"""Verification of drafts by sampling, as on a GPU.

SGLang's CPU verification always commits the arg max, whatever the temperature. Here a sampled request is verified
against the target's distribution (``SGLANG_CPU_SAMPLED_VERIFY=0`` gives SGLang's own CPU behaviour back).
"""

from __future__ import annotations

import os
from typing import Any

import torch


def softmax(logits: torch.Tensor, temperatures: torch.Tensor | None = None) -> torch.Tensor:
    """Probabilities of each row at its temperature."""
    scaled = logits.float()
    return (scaled if temperatures is None else scaled / temperatures.view(-1, 1)).softmax(-1)


def keep_top_k(probabilities: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Only the ``k`` likeliest tokens of each row (ties with the last one stay), made to sum to 1."""
    ordered = probabilities.sort(-1, descending=True).values
    threshold = ordered.gather(-1, k.view(-1, 1).long().clamp(max=probabilities.shape[-1]) - 1)
    kept = probabilities.masked_fill(probabilities < threshold, 0)
    return kept / kept.sum(-1, keepdim=True)


def keep_top_p(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Only the likeliest tokens that together reach ``top_p``, made to sum to 1."""
    ordered, order = probabilities.sort(-1, descending=True)
    ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered > top_p.view(-1, 1), 0)
    kept = torch.zeros_like(probabilities).scatter(-1, order, ordered)
    return kept / kept.sum(-1, keepdim=True)


def verify(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float,
    threshold_acc: float,
    deterministic: bool = True,
) -> None:
    """Walk each request's tree of drafts and write what is accepted into the first three tensors.

    A child is taken when the coin falls into the target's mass of the children tried so far; at the end the bonus
    token comes from what is left of the target's distribution.
    """
    batch, nodes = candidates.shape
    tokens = candidates.tolist()
    positions = retrive_index.view(batch, nodes).tolist()
    first_children = retrive_next_token.view(batch, nodes).tolist()
    siblings = retrive_next_sibling.view(batch, nodes).tolist()
    coins = uniform_samples.tolist()
    for row in range(batch):
        node, accepted, last = 0, 0, positions[row][0]
        accept_index[row, 0] = last
        left = target_probs[row, 0].clone()
        coin = coins[row][0]
        while accepted + 1 < accept_index.shape[1]:
            child, mass, taken = first_children[row][node], 0.0, -1
            while child != -1:
                token = tokens[row][child]
                probability = float(target_probs[row, node, token])
                mass += probability
                inside = coin <= mass / max(threshold_acc, 1e-9) and probability > 0
                if inside or probability >= threshold_single:
                    taken = child
                    break
                left[token] = 0
                child = siblings[row][child]
            if taken == -1:
                break
            predicts[last] = tokens[row][taken]
            node = taken
            accepted += 1
            last = positions[row][node]
            accept_index[row, accepted] = last
            left = target_probs[row, node].clone()
            coin = coins[row][node]
        accept_token_num[row] = accepted
        predicts[last] = _bonus_token(left, float(uniform_samples_for_final_sampling[row]), target_probs[row, node])


def _bonus_token(left: torch.Tensor, coin: float, target: torch.Tensor) -> int:
    """The token at ``coin`` of the remaining mass; the likeliest one where nothing is left."""
    cumulative = left.double().cumsum(0)
    total = float(cumulative[-1])
    if not total > 0:  # nothing, or not a number
        return int(target.argmax())
    place = torch.searchsorted(cumulative, torch.tensor([coin * total], dtype=torch.double), right=True)
    return min(int(place), left.numel() - 1)


def patch(module: Any) -> None:
    """Put them in place of the CUDA kernels, and let sampled requests reach them."""
    if os.environ.get("SGLANG_CPU_SAMPLED_VERIFY", "1") == "0":
        return
    module._verify_uses_greedy = lambda *, is_all_greedy, **_: is_all_greedy
    module.sampling_softmax = softmax
    module.top_k_renorm_prob = keep_top_k
    module.top_p_renorm_prob = keep_top_p
    module.tree_speculative_sampling_target_only = verify
