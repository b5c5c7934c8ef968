"""True times: how long decoding takes on the rehearsed machine, by load, speculation and settings.

The users' machine is the measure: 172 tok/s at concurrency 1 and 2,156 at 32 without speculation, answers of 256
tokens to prompts of about 200. A forward pass costs a part that every batch pays (weights, launches, all-reduces) and a
part by row; speculation adds draft passes and rows to verify, and is paid back in accepted tokens. Settings change the
parts by a few percent each (table EFFECTS), so that a search has something to find. Written apart from any model that
predicts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rehearsal.answers import stream
from rehearsal.resolution import is_big
from rehearsal.settings import Settings

COMPUTE_MS, REDUCE_MS, ROW_MS = 3.23, 2.10, 0.268
DRAFT_MS, DRAFT_ROW_MS, EXTEND_MS, EXTEND_ROW_MS = 1.40, 0.030, 1.00, 0.030
VERIFY_ROW = 0.45  # of a row's cost, for each draft token that is verified beside the first
CONTEXT_MS = 0.9  # a row's attention over 32,768 tokens
FIRST_TOKEN_MS = 42.0
PREFILL_TOKENS_A_S = 12000.0
# Chance that the n-th draft token is accepted, counted from the start of the step.
ACCEPTED = (0.85, 0.67, 0.51, 0.36, 0.31, 0.25, 0.20, 0.16)
LONG_CONTEXT = 32768


class Effect(NamedTuple):
    """What a setting multiplies: the all-reduces at one request and at many, the compute at both, and prefill."""

    name: str
    value: Any
    reduce_few: float = 1.0
    reduce_many: float = 1.0
    compute_few: float = 1.0
    compute_many: float = 1.0
    prefill: float = 1.0


EFFECTS = (
    Effect("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", ("1", "true", "True"), 0.62, 0.86),
    Effect("NCCL_PROTO", ("LL",), 0.90, 1.07, prefill=0.86),
    Effect("NCCL_PROTO", ("LL128",), 0.96, 0.98),
    Effect("NCCL_PROTO", ("LL,LL128,Simple",), 0.93, 0.97),
    Effect("NCCL_ALGO", ("Tree",), 0.95, 1.06, prefill=0.93),
    Effect("NCCL_ALGO", ("Ring",), 1.0, 0.99),
    Effect("NCCL_P2P_LEVEL", ("SYS", "4"), 0.95, 0.93, prefill=1.05),
    Effect("NCCL_P2P_LEVEL", ("PHB", "2"), 1.02, 1.02),
    Effect("NCCL_P2P_DISABLE", ("1",), 2.6, 1.7, prefill=0.6),
    Effect("NCCL_SHM_DISABLE", ("1",), 1.8, 1.5, prefill=0.8),
    Effect("NCCL_MIN_NCHANNELS", ("4",), 0.99, 0.97, prefill=1.03),
    Effect("NCCL_MIN_NCHANNELS", ("8",), 0.99, 0.94, prefill=1.08),
    Effect("NCCL_MIN_NCHANNELS", ("16", "32"), 1.03, 0.93, prefill=1.10),
    Effect("NCCL_CUMEM_ENABLE", ("1",), 0.99, 0.99),
    Effect("moe_runner_backend", ("marlin",), compute_few=0.93, compute_many=1.10, prefill=0.80),
    Effect("moe_runner_backend", ("triton",), compute_few=1.15, compute_many=1.20, prefill=0.85),
    Effect("moe_runner_backend", ("cutlass",), compute_few=1.05, compute_many=1.02),
    Effect("fp4_gemm_runner_backend", ("flashinfer_cudnn",), compute_few=0.985, compute_many=0.97, prefill=1.02),
    Effect("fp4_gemm_runner_backend", ("marlin",), compute_few=0.98, compute_many=1.06, prefill=0.90),
    Effect("attention_backend", ("triton",), compute_few=0.99, compute_many=1.03, prefill=0.92),
    Effect("kv_cache_dtype", ("fp8_e4m3", "fp8_e5m2"), compute_few=0.995, compute_many=0.97),
    Effect("mamba_ssm_dtype", ("bfloat16", "float16"), compute_few=0.985, compute_many=0.95),
    Effect("enable_linear_replayssm_spec", (True,), compute_few=0.98, compute_many=0.97),
    Effect("mamba_radix_cache_strategy", ("extra_buffer_lazy",), compute_few=0.995, compute_many=0.985),
    Effect("page_size", (64, 32, 16), compute_few=0.997, compute_many=0.985),
    Effect("disable_overlap_schedule", (True,), compute_few=1.12, compute_many=1.16),
    Effect("num_continuous_decode_steps", (2, 4, 8), compute_few=0.99, compute_many=0.985),
    Effect("enable_fused_qk_norm_rope", (True,), compute_few=0.985, compute_many=0.99),
    Effect("chunked_prefill_size", (2048,), prefill=0.88),
    Effect("chunked_prefill_size", (4096,), prefill=0.95),
    Effect("chunked_prefill_size", (16384,), prefill=1.02),
    Effect("disable_cuda_graph", (True,), compute_few=2.4, compute_many=1.3),
    Effect("moe_a2a_backend", ("deepep", "flashinfer"), reduce_few=1.3, reduce_many=1.5),
)  # fmt: skip


class Times(NamedTuple):
    """How one launch decodes. All of it in milliseconds, at life's pace."""

    compute: tuple[float, float]
    reduce: tuple[float, float]
    row: float
    steps: int
    draft_tokens: int
    acceptance: tuple[float, ...]
    prefill_tokens_a_s: float
    replicas: int
    fixed_ttft: float | None
    fixed_tpot: float | None
    fixed_chunk: int | None

    @property
    def speculative(self) -> bool:
        """Whether several tokens may come of a step."""
        return self.steps > 0

    def step_ms(self, running: float, context: int) -> float:
        """One step of a batch: a forward pass, or drafts and their verification."""
        if self.fixed_tpot is not None:
            return self.fixed_tpot * (self.fixed_chunk or 1)
        rows = max(1.0, running / self.replicas)
        many = min(1.0, (rows - 1) / 31)
        common = _between(self.compute, many) * COMPUTE_MS + _between(self.reduce, many) * REDUCE_MS
        by_row = self.row * _between(self.compute, many)
        attention = CONTEXT_MS * context / LONG_CONTEXT * (1 + 0.15 * (rows - 1))
        if not self.speculative:
            return common + by_row * rows + attention
        verify = common + by_row * rows * (1 + VERIFY_ROW * (self.draft_tokens - 1)) + attention * 1.1
        drafts = self.steps * (DRAFT_MS * _between(self.reduce, many) ** 0.5 + DRAFT_ROW_MS * rows)
        return verify + drafts + EXTEND_MS + EXTEND_ROW_MS * rows

    def accepted(self, number: float, context: int) -> int:
        """Tokens that one step yields, the sure one included; ``number`` from 0 to 1 is the step's luck."""
        if self.fixed_chunk is not None:
            return self.fixed_chunk
        if not self.speculative:
            return 1
        # Beyond 32 k tokens acceptance was reported to fall to 1.57.
        far = max(0.25, 1 - 0.75 * max(0, context - LONG_CONTEXT // 2) / LONG_CONTEXT)
        return 1 + sum(1 for chance in self.acceptance if number < chance * far)

    def prefill_ms(self, tokens: int) -> float:
        """Time that a prompt keeps the machine busy."""
        return 0.0 if self.fixed_ttft is not None else tokens / self.prefill_tokens_a_s / self.replicas * 1000

    def first_token_ms(self) -> float:
        """What a first token costs beside its prompt."""
        return FIRST_TOKEN_MS if self.fixed_ttft is None else self.fixed_ttft


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * share


def _luck(seed: str, deviation: float) -> float:
    """A factor around 1, repeatable for a seed (the mean of twelve uniform numbers, nearly normal)."""
    numbers = stream(seed)
    return 1 + deviation * (sum(next(numbers) for _ in range(12)) - 6)


def times(args: dict[str, Any], environment: dict[str, str], settings: Settings, launch_seed: str) -> Times:
    """The times of a launch: settled by its configuration, with a little noise of the launch's own."""
    values: dict[str, Any] = {**environment, **args}
    compute, reduce, prefill = [1.0, 1.0], [1.0, 1.0], 1.0
    for effect in EFFECTS:
        if values.get(effect.name) in effect.value:
            compute = [compute[0] * effect.compute_few, compute[1] * effect.compute_many]
            reduce = [reduce[0] * effect.reduce_few, reduce[1] * effect.reduce_many]
            prefill *= effect.prefill
    width = args["tp_size"]
    if args["device"] == "cpu":
        # Two cores with the small model: 89 tok/s at concurrency 1, 197 at 4.
        compute, reduce, row, prefill = [2.6, 2.6], [0.0, 0.0], 1.05, prefill * 0.2
    else:
        heavier = (8 / width) ** 0.8 if is_big(args) else 0.8
        compute = [part * heavier for part in compute]
        # No all-reduce crosses the sockets at four or fewer, so a narrower one is cheaper than its share of traffic.
        reduce = [part * (width - 1) / 7 * (1.0 if width > 4 else 0.8) for part in reduce]
        # Stages of a pipeline work on different requests at once, with some bubbles.
        row = ROW_MS * heavier / (1 if args["pp_size"] == 1 else 0.85 * args["pp_size"])
    # What no table holds: a configuration's own half percent.
    told = {
        name: value for name, value in args.items() if name not in ("port", "host", "random_seed", "dist_init_addr")
    }
    named = {k: v for k, v in environment.items() if k.startswith(("NCCL_", "SGLANG_"))}
    own = _luck(repr((sorted(told.items(), key=str), sorted(named.items()))), 0.004)
    whole = own * _luck(launch_seed, 0.006 * settings.noise)
    steps = args["speculative_num_steps"] or 0 if args["speculative_algorithm"] else 0
    topk = args["speculative_eagle_topk"] or 1
    gain = 1.0 + 0.05 * min(3, topk - 1)
    acceptance = tuple(min(0.97, chance * gain) for chance in ACCEPTED[: min(steps, len(ACCEPTED))])
    return Times(
        (compute[0] * whole, compute[1] * whole),
        (reduce[0] * whole, reduce[1] * whole),
        row * whole,
        steps,
        args["speculative_num_draft_tokens"] or 0,
        acceptance,
        PREFILL_TOKENS_A_S * prefill / whole,
        args["dp_size"],
        settings.ttft_ms,
        settings.tpot_ms,
        settings.tokens_per_chunk if settings.tpot_ms is not None else None,
    )
