"""The start of one rank: its stages in order, what each says, how long it lasts, and what memory is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rehearsal.log_lines import line
from rehearsal.memory import CONTEXT_GB, Memory
from rehearsal.resolution import graph_batch_sizes, is_big, is_hybrid, prefill_graphs

# The names under which faults are asked for, in the order of a start.
STAGES = (
    "imports",
    "distributed init",
    "weights",
    "draft weights",
    "mamba and KV cache",
    "autotune",
    "prefill graphs",
    "target graphs",
    "draft graphs",
    "draft-extend graphs",
    "warm-up",
)


class Bar(NamedTuple):
    """A progress bar: of shards (no sizes), or of the batch sizes that graphs are captured for."""

    total: int
    sizes: tuple[int, ...]
    avail: float
    used: float


class Stage(NamedTuple):
    """``seconds`` at life's pace; lines in ``end`` hold ``elapsed=@`` where the time that it took belongs."""

    name: str
    seconds: float
    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    bar: Bar | None = None


def _said(version: str, *lines: tuple[str, dict[str, Any]]) -> tuple[str, ...]:
    texts = (line(version, name, **fields) for name, fields in lines)
    return tuple(text for text in texts if text is not None)


def pace(args: dict[str, Any], memory: Memory) -> dict[str, float]:
    """Seconds of each stage at life's pace, before a rank's own skew: minutes for the users' model, less for others."""
    big = is_big(args)
    sizes = len(graph_batch_sizes(args))
    speculative = bool(args["speculative_algorithm"])
    autotune = not args["disable_flashinfer_autotune"] and args["moe_runner_backend"].startswith("flashinfer")
    return {
        "imports": 17.0,
        "distributed init": 6.0 if big else 0.9,
        "weights": 4.0 + memory.weights * args["tp_size"] / 3.2 if big else 0.3,
        "draft weights": (3.5 if big else 0.05) if speculative else 0.0,
        "mamba and KV cache": 2.4 if big else 1.0,
        "autotune": 22.0 if autotune and big else 0.0,
        "prefill graphs": (28.0 if big else 6.0) if prefill_graphs(args) else 0.0,
        "target graphs": (20.0 + 0.9 * sizes if big else 8.0 + 0.4 * sizes) if sizes else 0.0,
        "draft graphs": 4.0 + 0.25 * sizes if sizes and speculative and args["speculative_num_steps"] > 1 else 0.0,
        "draft-extend graphs": 2.0 + 0.12 * sizes if sizes and speculative else 0.0,
        "warm-up": 8.0 if big else 2.0,
    }


def stages(args: dict[str, Any], memory: Memory, version: str, first: bool) -> Iterator[Stage]:
    """What one rank goes through, from its first line to the last before it serves. ``first`` is rank 0."""
    seconds = pace(args, memory)
    cuda = args["device"] != "cpu"
    avail = memory.total - CONTEXT_GB
    world = args["tp_size"] * args["pp_size"]
    type_name = "Qwen3_5MoeForConditionalGeneration" if is_hybrid(args) else "LlamaForCausalLM"
    speculative = bool(args["speculative_algorithm"])

    yield Stage("imports", seconds["imports"])
    begin: list[tuple[str, dict[str, Any]]] = [("distributed begin", {})]
    if first and cuda and world > 1:
        begin.append(("nccl", {}))
        if world > 2 and not args["disable_custom_all_reduce"]:
            begin.append(("no custom all-reduce", {}))
    ends: tuple[tuple[str, dict[str, Any]], ...] = (
        ("distributed end", {"elapsed": 0.0, "used": CONTEXT_GB}),
        ("baseline", {"used": CONTEXT_GB}),
    )
    yield Stage("distributed init", seconds["distributed init"], _said(version, *begin), _elapsed(version, ends))

    shards = 47 if is_big(args) else 1
    quant = f"quant={args['quantization']}, " if args["quantization"] else ""
    left = avail - memory.weights
    yield Stage(
        "weights",
        seconds["weights"],
        _said(version, ("weights begin", {"avail": avail})),
        _elapsed(version, (("weights end", _end(left, memory.weights) | {"type": type_name, "quant": quant}),)),
        Bar(shards, (), avail, memory.weights) if first else None,
    )
    if speculative:
        draft_end = {"type": type_name + "MTP", "quant": quant}
        yield Stage(
            "draft weights",
            seconds["draft weights"],
            _said(version, ("draft begin", {}), ("draft end", {}), ("weights begin", {"avail": left})),
            _elapsed(version, (("weights end", _end(left - memory.draft_weights, memory.draft_weights) | draft_end),)),
            Bar(1, (), left, memory.draft_weights) if first else None,
        )
        left -= memory.draft_weights
    yield _pools(args, memory, version, first, seconds["mamba and KV cache"])
    left = memory.after_pools
    begins: list[tuple[str, dict[str, Any]]] = []
    if seconds["autotune"]:
        begins = [("autotune begin", {}), *([("autotune skip", {})] * 3 if first else [])]
    tuned = _said(version, ("autotune end", {})) if begins else ()
    yield Stage("autotune", seconds["autotune"], _said(version, *begins), tuned)
    sizes = tuple(graph_batch_sizes(args))
    if seconds["prefill graphs"]:
        chunks = [size for size in (4, 32, 128, 512, 1024, 4096, 8192) if size <= max(args["chunked_prefill_size"], 4)]
        fields = {"backend": "breakable", "sizes": chunks, "avail": left}
        begins = [("prefill graphs begin", fields)]
        yield _graphs("prefill graphs", "target prefill", seconds, version, begins, left, memory.prefill_graphs, first,
                      tuple(chunks))  # fmt: skip
        left -= memory.prefill_graphs
    else:
        yield Stage("prefill graphs", 0.0, _said(version, ("no prefill graphs", {})))
    per_request = args["speculative_num_draft_tokens"] if speculative else 1
    for name, which, tokens, used in (
        ("target graphs", "target verify" if speculative else "target decode", per_request, memory.target_graphs),
        ("draft graphs", "draft decode", args["speculative_eagle_topk"] or 1, memory.draft_graphs),
        ("draft-extend graphs", "draft extend", per_request, memory.extend_graphs),
    ):
        if seconds[name]:
            fields = {"which": which, "backend": "full", "tokens": tokens, "sizes": list(sizes), "avail": left}
            yield _graphs(name, which, seconds, version, [("graphs begin", fields)], left, used, first, sizes)
            left -= used
    yield Stage("warm-up", 0.0, (), _summary(args, memory, version, first, left))


def _end(avail: float, used: float) -> dict[str, Any]:
    return {"avail": avail, "used": used, "elapsed": 0.0}


def _elapsed(version: str, lines: tuple[tuple[str, dict[str, Any]], ...]) -> tuple[str, ...]:
    """Lines whose elapsed time is filled in when it is known: ``elapsed=@``."""
    return tuple(text.replace("elapsed=0.00", "elapsed=@") for text in _said(version, *lines))


def _graphs(name: str, which: str, seconds: dict[str, float], version: str, begins: list[tuple[str, dict[str, Any]]],
            left: float, used: float, first: bool, sizes: tuple[int, ...]) -> Stage:  # fmt: skip
    return Stage(
        name,
        seconds[name],
        _said(version, *begins),
        _elapsed(version, (("graphs end", _end(left - used, used) | {"which": which}),)),
        Bar(len(sizes), sizes, left, used) if first else None,
    )


def _pools(args: dict[str, Any], memory: Memory, version: str, first: bool, seconds: float) -> Stage:
    lines: list[str] = []
    if is_hybrid(args):
        text = line(version, "mamba", states=memory.states, conv=memory.conv, ssm=memory.ssm) or ""
        if args["speculative_algorithm"]:
            text += line(version, "mamba intermediate", intermediate=memory.intermediate) or ""
        lines.append(text)
    dtype = "torch.float8_e4m3fn" if args["kv_cache_dtype"] == "fp8_e4m3" else "torch.bfloat16"
    after_target = memory.after_pools + memory.draft_kv
    kv = [("kv", {"dtype": dtype, "tokens": memory.tokens, "half": memory.kv / 2})]
    kv.append(("pool end", {"avail": after_target}))
    if args["speculative_algorithm"]:
        kv.append(("kv", {"dtype": dtype, "tokens": memory.tokens, "half": memory.draft_kv / 2}))
        kv.append(("pool end", {"avail": memory.after_pools}))
    if is_hybrid(args):
        if first:
            kv.append(("linear", {"backend": args["linear_attn_backend"]}))
        kv.append(("hybrid", {}))
    lines.extend(_said(version, *kv))
    return Stage("mamba and KV cache", seconds, (), tuple(lines))


def _summary(args: dict[str, Any], memory: Memory, version: str, first: bool, left: float) -> tuple[str, ...]:
    hybrid = is_hybrid(args)
    components = "<ComponentType.FULL: 0>, <ComponentType.MAMBA: 2>" if hybrid else "<ComponentType.FULL: 0>,"
    lines: list[tuple[str, dict[str, Any]]] = [("tree", {"components": components}), ("tree 2", {"hybrid": hybrid})]
    if first:
        fields = {
            "tokens": memory.tokens,
            "chunk": args["chunked_prefill_size"],
            "prefill": args["max_prefill_tokens"],
            "running": min(args["max_running_requests"], memory.states or args["max_running_requests"]),
            "context": args["context_length"],
            "device": "cpu" if args["device"] == "cpu" else "gpu",
            "avail": left,
        }
        lines.insert(0, ("summary", fields))
    return _said(version, *lines)
