"""Where the memory of one GPU goes, in GB: the users' model from its published sizes, any other as a small one."""

from __future__ import annotations

from typing import Any, NamedTuple

from rehearsal.resolution import graph_batch_sizes, is_big, is_hybrid, prefill_graphs
from rehearsal.settings import Settings

CONTEXT_GB = 1.32
BIG_WEIGHTS_GB, SMALL_WEIGHTS_GB = 236.0, 0.31
BIG_DRAFT_GB, SMALL_DRAFT_GB = 7.4, 0.06
BIG_STATE_GB, SMALL_STATE_GB = 0.189, 0.006  # recurrent state of one request, over all ranks
BIG_KV_KB, SMALL_KV_KB = 15.36, 2.0  # one token of KV on one rank, fp8


class Memory(NamedTuple):
    """One rank's memory. ``lacking`` names what does not fit: "weights", "pools", "graphs" or nothing."""

    total: float
    weights: float
    draft_weights: float
    states: int
    conv: float
    ssm: float
    intermediate: float
    tokens: int
    kv: float
    draft_kv: float
    after_pools: float
    target_graphs: float
    draft_graphs: float
    extend_graphs: float
    prefill_graphs: float
    activations: float
    lacking: str


def plan(args: dict[str, Any], settings: Settings) -> Memory:
    """How one rank fills its GPU (or the host's memory, on the CPU) under these arguments."""
    big = is_big(args)
    cuda = args["device"] != "cpu"
    total = settings.gpu_gb if cuda else 24.0
    shard = args["tp_size"] * args["pp_size"]
    speculative = bool(args["speculative_algorithm"])
    weights = (BIG_WEIGHTS_GB if big else SMALL_WEIGHTS_GB) / shard
    draft = (BIG_DRAFT_GB if big else SMALL_DRAFT_GB) / shard if speculative else 0.0
    budget = args["mem_fraction_static"] * total - weights - draft
    state = (BIG_STATE_GB if big else SMALL_STATE_GB) / shard
    if args["mamba_ssm_dtype"] in ("bfloat16", "float16"):
        state /= 2
    running = args["max_running_requests"]
    slots_each = {"no_buffer": 1, "extra_buffer": 3, "extra_buffer_lazy": 2}.get(args["mamba_radix_cache_strategy"], 1)
    draft_tokens = args["speculative_num_draft_tokens"] or 0
    intermediate = (min(running, 256) + 1) * draft_tokens * state if is_hybrid(args) else 0.0
    budget -= intermediate
    share = args["mamba_full_memory_ratio"] or 0.9
    states = 0
    if is_hybrid(args):
        states = max(0, int(budget * share / (1 + share) / state))
        states = min(states, args["max_mamba_cache_size"] or running * slots_each)
    ssm = states * state
    kilobytes = (BIG_KV_KB if big else SMALL_KV_KB) * (1 if args["kv_cache_dtype"].startswith("fp8") else 2)
    draft_share = 1 / 15 if speculative else 0.0
    tokens = max(0, int((budget - ssm) * 1e6 / (kilobytes * (1 + draft_share))))
    if args["max_total_tokens"]:
        tokens = min(tokens, args["max_total_tokens"])
    tokens -= tokens % args["page_size"]
    kv = tokens * kilobytes / 1e6
    after_pools = total - CONTEXT_GB - weights - draft - intermediate - ssm - kv * (1 + draft_share)
    sizes = graph_batch_sizes(args)
    target = (0.55 + 0.011 * len(sizes) + 0.0016 * max(sizes) * max(1, draft_tokens)) if sizes else 0.0
    draft_graphs = 0.35 + 0.006 * len(sizes) if sizes and speculative and args["speculative_num_steps"] > 1 else 0.0
    extend = 0.3 + 0.004 * len(sizes) if sizes and speculative else 0.0
    prefill = 0.9 if prefill_graphs(args) else 0.0
    if not big:
        target, draft_graphs, extend, prefill = target / 8, draft_graphs / 8, extend / 8, prefill / 8
    chunk = args["chunked_prefill_size"] if args["chunked_prefill_size"] > 0 else 16384
    activations = (2.0 * chunk / 8192 + 0.004 * min(running, 512)) * (1.0 if big else 0.05)
    if args["enable_symm_mem"]:
        activations += 4.0
    lacking = ""
    if weights + draft + CONTEXT_GB > total:
        lacking = "weights"
    elif budget <= 0 or tokens < 2048 or (is_hybrid(args) and states < 4):
        lacking = "pools"
    elif cuda and after_pools < target + draft_graphs + extend + prefill + activations:
        lacking = "graphs"
    return Memory(
        total, weights, draft, states, ssm * 0.023, ssm * 0.977, intermediate, tokens, kv, kv * draft_share,
        after_pools, target, draft_graphs, extend, prefill, activations, lacking,
    )  # fmt: skip
