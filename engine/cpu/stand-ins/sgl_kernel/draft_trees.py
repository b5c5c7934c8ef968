"""Trees of draft tokens: built from what the draft model chose, verified greedily, and read back from their mask.

A tree has ``nodes`` nodes, the last committed token first. Trees are handed over as first child and next sibling of
each node (-1: none), with the index of each node in the flattened batch.
"""

from __future__ import annotations

import torch

FULL_MASK, QUERY_MASK = 0, 1


def _links(selected: list[int], parents: list[int], topk: int, nodes: int) -> tuple[list[int], list[int], list[int]]:
    """(first child, next sibling, parent) of each node of one tree."""
    first_child, next_sibling, parent_of = [-1] * nodes, [-1] * nodes, [-1] * nodes
    for node in range(nodes - 1, 0, -1):
        group = selected[node - 1] // topk
        parent = 0
        if group != 0:
            token = parents[group]
            if token not in selected[: nodes - 1]:
                continue
            parent = selected.index(token) + 1
        parent_of[node] = parent
        if first_child[parent] != -1:
            next_sibling[node] = first_child[parent]
        first_child[parent] = node
    return first_child, next_sibling, parent_of


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    seq_lens: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    nodes: int,
    mode: int,
) -> None:
    """Fill mask, positions and links of every request's tree."""
    selected, parents = selected_index.tolist(), parent_list.tolist()
    index, children = retrieve_index.view(-1, nodes), retrieve_next_token.view(-1, nodes)
    siblings, place = retrieve_next_sibling.view(-1, nodes), positions.view(-1)
    full_begin = 0
    for row, length in enumerate(seq_lens.tolist()):
        place[row * nodes] = length
        index[row] = torch.arange(row * nodes, (row + 1) * nodes)
        first_child, next_sibling, parent_of = _links(selected[row], parents[row], topk, nodes)
        children[row] = torch.tensor(first_child, dtype=children.dtype)
        siblings[row] = torch.tensor(next_sibling, dtype=siblings.dtype)
        seen = torch.zeros(nodes, nodes, dtype=torch.bool)
        for node in range(nodes):
            seen[node, 0] = True
            above, ancestor = 0, node
            while ancestor > 0:
                seen[node, ancestor] = True
                above += 1
                ancestor = parent_of[ancestor]
            place[row * nodes + node] = length + above
        if int(mode) == FULL_MASK:
            width = length + nodes
            mask = tree_mask.view(-1)[full_begin : full_begin + nodes * width].view(nodes, width)
            mask[:, length:] = seen.to(mask.dtype)
            full_begin += nodes * width
        elif int(mode) == QUERY_MASK:
            each = nodes * nodes
            tree_mask.view(-1)[row * each : (row + 1) * each] = seen.flatten().to(tree_mask.dtype)
        else:
            raise NotImplementedError("no CPU version of a bit-packed tree mask: use another attention backend")


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Accept, from the root on, the child that is the target's own arg max, as long as there is one."""
    batch, nodes = candidates.shape
    tokens, index = candidates.tolist(), retrive_index.view(batch, nodes).tolist()
    children, siblings = (
        retrive_next_token.view(batch, nodes).tolist(),
        retrive_next_sibling.view(batch, nodes).tolist(),
    )
    target = target_predict.reshape(-1).tolist()
    for row in range(batch):
        last = index[row][0]
        accept_index[row, 0] = last
        accepted, node = 0, 0
        for _ in range(1, accept_index.shape[1]):
            node = children[row][node]
            while node != -1 and tokens[row][node] != target[last]:
                node = siblings[row][node]
            if node == -1:
                break
            predicts[last] = target[last]
            accepted += 1
            last = index[row][node]
            accept_index[row, accepted] = last
        accept_token_num[row] = accepted
        predicts[last] = target[last]


def reconstruct_indices_from_tree_mask(
    tree_mask: torch.Tensor,
    seq_len: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    batch: int,
    nodes: int,
) -> None:
    """Links and positions of trees that are given as a mask (node x ancestor) only."""
    mask = tree_mask.view(-1)[: batch * nodes * nodes].view(batch, nodes, nodes).bool().tolist()
    lengths = seq_len.tolist()
    index, children = retrieve_index.view(-1, nodes), retrieve_next_token.view(-1, nodes)
    siblings, place = retrieve_next_sibling.view(-1, nodes), positions.view(-1)
    for row in range(batch):
        seen = mask[row]
        parent = [max([j for j in range(i) if seen[i][j]], default=-1) for i in range(nodes)]
        for node in range(nodes):
            later = range(node + 1, nodes)
            index[row, node] = row * nodes + node
            place[row * nodes + node] = lengths[row] + sum(seen[node][:node])
            children[row, node] = min([k for k in later if seen[k][node]], default=-1)
            same_parent = [k for k in later if parent[k] == parent[node]]
            siblings[row, node] = -1 if parent[node] < 0 else min(same_parent, default=-1)
