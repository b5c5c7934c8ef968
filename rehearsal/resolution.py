"""What SGLang makes of its arguments before any GPU work: its rewrites, and the combinations that it rejects.

A selection of its rules, for an SM120 or SM90 machine (or ``--device cpu``); the real one knows some sixty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.settings import Settings

EAGLE = ("EAGLE", "EAGLE3", "STANDALONE")
HYBRID = "Qwen3_5MoeForConditionalGeneration"


class Rejected(Exception):
    """The parent raises ``kind: text`` out of ``function`` of ``file``, and exits with 1."""

    def __init__(self, kind: str, text: str, file: str, line: int, function: str) -> None:
        super().__init__(text)
        self.kind, self.text, self.file, self.line, self.function = kind, text, file, line, function


def _spec(kind: str, text: str, line: int) -> Rejected:
    return Rejected(kind, text, "arg_groups/speculative_hook.py", line, "handle_eagle_family")


def is_big(args: dict[str, Any]) -> bool:
    """Whether the model is the 397B one of the users' machine: said by its name."""
    return "397b" in str(args["model_path"]).lower()


def is_hybrid(args: dict[str, Any]) -> bool:
    """Whether the model has linear-attention layers: every model but those that name another family."""
    name = str(args["model_path"]).lower()
    return not any(family in name for family in ("llama", "mistral", "gemma", "gpt"))


def _speculation(args: dict[str, Any], environment: Mapping[str, str], says: list[str]) -> None:
    if args["speculative_algorithm"] == "NEXTN":
        args["speculative_algorithm"] = "EAGLE"
    algorithm = args["speculative_algorithm"]
    if args["max_running_requests"] is None:
        args["max_running_requests"] = 48
        says.append("Max running requests is reset to 48 for speculative decoding.")
    if algorithm not in EAGLE:
        return
    steps, topk = args["speculative_num_steps"], args["speculative_eagle_topk"]
    if steps is None:
        if topk is not None or args["speculative_num_draft_tokens"] is not None:
            raise _spec("AssertionError", "", 1159)
        args.update(speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4)
        steps, topk = 3, 1
    if topk is None:
        topk = args["speculative_eagle_topk"] = 1
    if topk == 1 and args["speculative_num_draft_tokens"] != steps + 1:
        says.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
        )
        args["speculative_num_draft_tokens"] = steps + 1
    if args["speculative_num_draft_tokens"] is None:
        args["speculative_num_draft_tokens"] = steps * topk + 1
    if (
        topk > 1
        and (args["page_size"] or 1) > 1
        and args["attention_backend"] not in (None, "flashinfer", "fa3", "triton")
    ):
        text = "speculative_eagle_topk > 1 with page_size > 1 is only supported on flashinfer, fa3 and triton."
        raise _spec("ValueError", text, 1278)
    if topk > 1 and args["attention_backend"] == "trtllm_mha":
        raise _spec("ValueError", "trtllm_mha backend only supports topk = 1 for speculative decoding.", 1177)
    if args["speculative_use_rejection_sampling"] and topk != 1:
        raise _spec("ValueError", "--speculative-use-rejection-sampling requires --speculative-eagle-topk 1.", 1222)
    if args["pp_size"] > 1 and environment.get("SGLANG_ENABLE_PP_SPEC") not in ("1", "true", "True"):
        text = "PP + speculative decoding (MTP) is only supported on prefill nodes."
        raise Rejected("ValueError", text, "arg_groups/validation_hook.py", 140, "validate_pp_speculation")


def _mamba(args: dict[str, Any], says: list[str]) -> None:
    file, function = "arg_groups/mamba_hook.py", "handle_mamba_radix_cache"
    overlap = not args["disable_overlap_schedule"]
    page = args["page_size"] or 1
    strategy = args["mamba_radix_cache_strategy"]
    if strategy == "auto":
        buffered = (overlap or page > 1) and args["linear_attn_backend"] == "triton"
        strategy = "extra_buffer" if buffered else "no_buffer"
        if not buffered and overlap:
            args["disable_overlap_schedule"] = True
            says.append("Disabling overlap schedule since mamba no_buffer is not compatible with overlap schedule.")
        overlap = not args["disable_overlap_schedule"]
        args["mamba_radix_cache_strategy"] = strategy
    if strategy == "no_buffer":
        if page != 1:
            raise Rejected("ValueError", f"no_buffer only supports page_size=1. Got {page}.", file, 98, function)
        if overlap and not args["disable_radix_cache"]:
            text = "no_buffer do not support overlap schedule. Please set --disable-overlap-schedule."
            raise Rejected("ValueError", text, file, 104, function)
    elif args["linear_attn_backend"] != "triton":
        raise Rejected("ValueError", f"{strategy} is not supported for {HYBRID}; use no_buffer.", file, 117, function)
    if 64 % page and page % 64:
        text = f"For linear attention, either chunk_size or page_size must be divisible by the other, got 64, {page}"
        raise Rejected("AssertionError", text, "arg_groups/overrides.py", 1919, "check_page_size")
    draft = args["speculative_num_draft_tokens"]
    if draft and args["mamba_track_interval"] < draft:
        raise Rejected("AssertionError", "", file, 132, function)


def _attention(args: dict[str, Any], settings: Settings) -> None:
    if args["attention_backend"] is None:
        args["attention_backend"] = "torch_native" if args["device"] == "cpu" else "flashinfer"
    if args["prefill_attention_backend"] and args["prefill_attention_backend"] == args["decode_attention_backend"]:
        args["attention_backend"] = args["prefill_attention_backend"]
    prefill = args["prefill_attention_backend"] or args["attention_backend"]
    if settings.arch == "SM120" and prefill == "trtllm_mha" and args["kv_cache_dtype"] == "fp8_e4m3":
        text = "TRTLLM FMHAv2 prefill on SM120 does not support fp8_e4m3 KV cache or skip-softmax."
        raise Rejected("ValueError", text, "arg_groups/attention_hook.py", 218, "handle_attention_backend")


def _parallelism(args: dict[str, Any], says: list[str]) -> None:
    file = "arg_groups/parallel_hook.py"
    if args["pp_size"] > 1 and not args["disable_overlap_schedule"]:
        args["disable_overlap_schedule"] = True
        says.append("Pipeline parallelism is incompatible with overlap schedule.")
    if args["enable_dp_lm_head"] and not args.get("enable_dp_attention") and args.get("attn_dp_size", 1) == 1:
        text = "Please enable dp attention when setting enable_dp_lm_head."
        raise Rejected("AssertionError", text, file, 210, "handle_data_parallelism")
    if is_hybrid(args) and args["tp_size"] not in (1, 2, 4, 8):
        text = f"{args['tp_size']} does not divide the 32 attention heads and 64 linear value heads of the model"
        raise Rejected("AssertionError", text, file, 240, "check_divisibility")


def _experts(args: dict[str, Any]) -> None:
    if args["moe_runner_backend"] == "auto" and args["device"] == "cuda" and is_big(args):
        args["moe_runner_backend"] = "flashinfer_cutlass"
    if args["moe_runner_backend"] == "flashinfer_cutlass" and args["ep_size"] not in (1, args["tp_size"]):
        text = "The expert parallel size must be 1 or the same as the tensor parallel size"
        raise Rejected("AssertionError", text, "arg_groups/moe_hook.py", 88, "handle_moe_runner_backend")


def _sizes(args: dict[str, Any], settings: Settings) -> None:
    args["page_size"] = args["page_size"] or 1
    if args["chunked_prefill_size"] is None:
        args["chunked_prefill_size"] = 8192 if settings.gpu_gb < 160 else 16384
    if args["chunked_prefill_size"] > 0 and args["chunked_prefill_size"] % args["page_size"]:
        text = "chunked_prefill_size must be divisible by page_size"
        raise Rejected("ValueError", text, "arg_groups/validation_hook.py", 243, "validate_chunked_prefill")
    if args["mem_fraction_static"] is None:
        args["mem_fraction_static"] = 0.86 if args["tp_size"] >= 4 else 0.88
    if args["max_running_requests"] is None:
        args["max_running_requests"] = 16 if args["device"] == "cpu" else 2048
    wanted = args["cuda_graph_max_bs_decode"] or (512 if args["tp_size"] >= 4 else 256)
    if args["cuda_graph_bs_decode"]:
        wanted = max(args["cuda_graph_bs_decode"])
    args["cuda_graph_max_bs_decode"] = min(wanted, args["max_running_requests"])
    args["context_length"] = args["context_length"] or (262144 if is_big(args) else 32768)


def resolve(
    asked: dict[str, Any], settings: Settings, environment: Mapping[str, str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(every argument as it will be used, what the log says about it); raises Rejected."""
    args = dict(asked)
    says: list[str] = []
    args["device"] = args["device"] or "cuda"
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    if args["random_seed"] is None:
        args["random_seed"] = (settings.seed or 0) + 20261130
    _attention(args, settings)
    _parallelism(args, says)
    if args["speculative_algorithm"]:
        _speculation(args, environment, says)
    if is_hybrid(args) and args["device"] == "cuda":
        _mamba(args, says)
    elif is_hybrid(args):
        args["mamba_radix_cache_strategy"] = "no_buffer"
    _experts(args)
    _sizes(args, settings)
    return args, tuple(says)


def graph_batch_sizes(args: dict[str, Any]) -> list[int]:
    """The batch sizes that decode graphs are captured for; empty where graphs are off."""
    off = args["device"] == "cpu" or args["disable_cuda_graph"] or args["disable_decode_cuda_graph"]
    if off or args["cuda_graph_backend_decode"] == "disabled":
        return []
    limit = args["cuda_graph_max_bs_decode"]
    if args["cuda_graph_bs_decode"]:
        sizes = sorted(args["cuda_graph_bs_decode"])
    elif args["disable_cuda_graph_padding"]:
        sizes = list(range(1, limit + 1))
    elif args["speculative_algorithm"]:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, 513, 16)]
    else:
        sizes = [1, 2, 4, 8, *range(12, 17, 4), *range(24, 257, 8), *range(272, 513, 16)]
    sizes = [size for size in sizes if size <= limit]
    return sizes if sizes and sizes[-1] == limit else [*sizes, limit]


def prefill_graphs(args: dict[str, Any]) -> bool:
    """Whether prefill graphs are captured."""
    off = args["device"] == "cpu" or args["disable_cuda_graph"] or args["disable_prefill_cuda_graph"]
    return not (off or args["cuda_graph_backend_prefill"] == "disabled" or args["pp_size"] > 1)
