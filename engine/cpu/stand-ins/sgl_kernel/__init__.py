"""Stand-in for the ``sgl_kernel`` wheel: every name imports, calling one that has no version here raises.

What SGLang's CPU path calls has a version in torch, written from its mathematics: ``cache_locations`` (where tokens
go), ``draft_trees`` (building and verifying trees of drafts), ``dense_attention``, ``delta_net`` and ``causal_conv``
(the linear attention of hybrid models) and ``routing`` (choosing experts).
"""

import importlib
from types import ModuleType

import torch

from .missing import Missing, module_of_missing_names

__version__ = "0.0.0+standin"

_SUBMODULES = (
    "allreduce",
    "attention",
    "cutlass_moe",
    "elementwise",
    "flash_attn",
    "flash_mla",
    "fused_moe",
    "gemm",
    "grammar",
    "hadamard",
    "kvcacheio",
    "mamba",
    "memory",
    "moe",
    "quantization",
    "sampling",
    "sparse_flash_attn",
    "spatial",
    "speculative",
    "ssm",
    "top_k",
    "utils",
)
for _name in _SUBMODULES:
    globals()[_name] = module_of_missing_names(f"sgl_kernel.{_name}")


def __getattr__(name: str) -> Missing:
    if name.startswith("__"):
        raise AttributeError(name)
    return Missing(name)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"sgl_kernel.{name}")


# SGLang reaches an operator in one of three ways: a name of the package, a name of a submodule, torch.ops.sgl_kernel.
_IN_PACKAGE = {
    "cache_locations": (
        "copy_all_layer_kv_cache_cpu",
        "fill_bonus_tokens_cpu",
        "fill_accept_out_cache_loc_cpu",
        "assign_draft_cache_locs_contiguous_cpu",
        "assign_extend_cache_locs_cpu",
        "assign_req_to_token_pool_cpu",
        "rotate_input_ids_cpu",
        "build_draft_decode_metadata_cpu",
    ),
    "draft_trees": (
        "build_tree_kernel_efficient_cpu",
        "verify_tree_greedy_cpu",
        "reconstruct_indices_from_tree_mask",
    ),
    "dense_attention": ("extend_attention_cpu", "decode_attention_cpu"),
}
_IN_SUBMODULE = {
    ("speculative", "draft_trees"): ("reconstruct_indices_from_tree_mask",),
    ("mamba", "causal_conv"): ("causal_conv1d_fn_cpu", "causal_conv1d_update_cpu"),
    ("mamba", "delta_net"): ("chunk_gated_delta_rule_cpu",),
}
_IN_TORCH_OPS = {
    "dense_attention": ("extend_attention_cpu", "decode_attention_cpu"),
    "delta_net": ("fused_gdn_gating_cpu", "fused_sigmoid_gating_delta_rule_update_cpu"),
    "routing": ("topk_softmax_cpu",),
}
for _source, _names in _IN_PACKAGE.items():
    for _name in _names:
        globals()[_name] = getattr(_module(_source), _name)
for (_submodule, _source), _names in _IN_SUBMODULE.items():
    for _name in _names:
        setattr(globals()[_submodule], _name, getattr(_module(_source), _name))
for _source, _names in _IN_TORCH_OPS.items():
    for _name in _names:
        setattr(torch.ops.sgl_kernel, _name, getattr(_module(_source), _name))

if not torch.cuda.is_available():  # some models call it unconditionally when the draft shares the target's embedding
    torch.cuda.synchronize = lambda *_, **__: None
