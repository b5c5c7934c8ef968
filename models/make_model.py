#!/usr/bin/env python3
# ruff: noqa: PLC0415 - one script: a model's shape is a list of numbers, its tokenizer is imported where it is made
"""Write tiny random models for SGLang: make_model.py OUTDIR [dense|next|all]

OUTDIR/dense  Qwen3ForCausalLM      8 layers, hidden 1024
OUTDIR/next   Qwen3NextForCausalLM  hybrid GDN + full attention, MoE, one MTP layer (mtp.*)
Needs torch, safetensors, tokenizers only. Qwen3-Next names and the packed
in_proj_qkvz / in_proj_ba layout are those of the published checkpoints.
"""

import glob
import json
import os
import sys
import sysconfig

import torch
from safetensors.torch import save_file

BF = torch.bfloat16
VOCAB = 8192
G = torch.Generator().manual_seed(7)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def W(*s, std=None):
    std = std if std is not None else (s[-1] ** -0.5 if len(s) > 1 else 0.02)
    return (torch.randn(*s, generator=G) * std).to(BF)


def write_json(path, content):
    with open(path, "w") as f:
        json.dump(content, f, indent=1)


def tokenizer(d, vocab=VOCAB):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    files = sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py")))[:120]
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train(
        files,
        trainers.BpeTrainer(
            vocab_size=vocab - 64,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    t.save(os.path.join(d, "tokenizer.json"))
    write_json(
        os.path.join(d, "tokenizer_config.json"),
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 32768,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT,
        },
    )
    write_json(
        os.path.join(d, "generation_config.json"),
        {"eos_token_id": 2, "pad_token_id": 0, "transformers_version": "5.12.1"},
    )


def finish(d, cfg, w):
    write_json(os.path.join(d, "config.json"), cfg)
    w = {k: v.contiguous() for k, v in w.items()}
    save_file(w, os.path.join(d, "model.safetensors"), metadata={"format": "pt"})
    n = sum(v.numel() for v in w.values())
    print(f"{d}: {len(w)} tensors, {n / 1e6:.1f} M parameters")


def dense(d, L=8, H=1024, nh=16, nkv=4, hd=128, inter=3072):
    os.makedirs(d, exist_ok=True)
    cfg = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": H,
        "num_hidden_layers": L,
        "num_attention_heads": nh,
        "num_key_value_heads": nkv,
        "head_dim": hd,
        "intermediate_size": inter,
        "vocab_size": VOCAB,
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": L,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 2,
        "use_cache": True,
    }
    w = {
        "model.embed_tokens.weight": W(VOCAB, H, std=1.0),
        "model.norm.weight": torch.ones(H, dtype=BF),
        "lm_head.weight": W(VOCAB, H),
    }
    for i in range(L):
        p = f"model.layers.{i}."
        w[p + "input_layernorm.weight"] = torch.ones(H, dtype=BF)
        w[p + "post_attention_layernorm.weight"] = torch.ones(H, dtype=BF)
        w[p + "self_attn.q_proj.weight"] = W(nh * hd, H)
        w[p + "self_attn.k_proj.weight"] = W(nkv * hd, H)
        w[p + "self_attn.v_proj.weight"] = W(nkv * hd, H)
        w[p + "self_attn.o_proj.weight"] = W(H, nh * hd)
        w[p + "self_attn.q_norm.weight"] = torch.ones(hd, dtype=BF)
        w[p + "self_attn.k_norm.weight"] = torch.ones(hd, dtype=BF)
        w[p + "mlp.gate_proj.weight"] = W(inter, H)
        w[p + "mlp.up_proj.weight"] = W(inter, H)
        w[p + "mlp.down_proj.weight"] = W(H, inter)
    finish(d, cfg, w)
    tokenizer(d)


def qwen3_next(d, L=8, H=1024, nh=8, nkv=2, hd=256, nk=8, nv=16, dk=128, dv=128, E=16, topk=4, mi=512):
    os.makedirs(d, exist_ok=True)
    kinds = ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(L)]
    cfg = {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "hidden_size": H,
        "num_hidden_layers": L,
        "num_attention_heads": nh,
        "num_key_value_heads": nkv,
        "head_dim": hd,
        "intermediate_size": 2048,
        "vocab_size": VOCAB,
        "hidden_act": "silu",
        "full_attention_interval": 4,
        "layer_types": kinds,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000000.0,
        "rope_scaling": None,
        "partial_rotary_factor": 0.25,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": dk,
        "linear_value_head_dim": dv,
        "linear_num_key_heads": nk,
        "linear_num_value_heads": nv,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": mi,
        "shared_expert_intermediate_size": mi,
        "num_experts": E,
        "num_experts_per_tok": topk,
        "norm_topk_prob": True,
        "mlp_only_layers": [],
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
        "initializer_range": 0.02,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 2,
        "use_cache": True,
        "num_nextn_predict_layers": 1,
    }
    kd, vd = nk * dk, nv * dv

    def z(n):
        return torch.zeros(n, dtype=BF)  # GemmaRMSNorm: weight is added to one

    def full(p):
        return {
            p + "self_attn.q_proj.weight": W(2 * nh * hd, H),  # with the output gate
            p + "self_attn.k_proj.weight": W(nkv * hd, H),
            p + "self_attn.v_proj.weight": W(nkv * hd, H),
            p + "self_attn.o_proj.weight": W(H, nh * hd),
            p + "self_attn.q_norm.weight": z(hd),
            p + "self_attn.k_norm.weight": z(hd),
        }

    def linear(p):
        p += "linear_attn."
        return {
            p + "in_proj_qkvz.weight": W(2 * kd + 2 * vd, H),
            p + "in_proj_ba.weight": W(2 * nv, H),
            p + "conv1d.weight": W(2 * kd + vd, 1, 4, std=0.5),
            p + "out_proj.weight": W(H, vd),
            p + "norm.weight": torch.ones(dv, dtype=BF),
            p + "dt_bias": torch.ones(nv, dtype=BF),
            p + "A_log": torch.log(torch.empty(nv).uniform_(1, 16, generator=G)).to(BF),
        }

    def moe(p):
        r = {p + "mlp.gate.weight": W(E, H), p + "mlp.shared_expert_gate.weight": W(1, H)}
        for q in [f"mlp.experts.{e}." for e in range(E)] + ["mlp.shared_expert."]:
            r[p + q + "gate_proj.weight"] = W(mi, H)
            r[p + q + "up_proj.weight"] = W(mi, H)
            r[p + q + "down_proj.weight"] = W(H, mi)
        return r

    w = {"model.embed_tokens.weight": W(VOCAB, H, std=1.0), "model.norm.weight": z(H), "lm_head.weight": W(VOCAB, H)}
    for i, k in enumerate(kinds):
        p = f"model.layers.{i}."
        w[p + "input_layernorm.weight"] = z(H)
        w[p + "post_attention_layernorm.weight"] = z(H)
        w.update(full(p) if k == "full_attention" else linear(p))
        w.update(moe(p))
    p = "mtp.layers.0."
    w.update(full(p))
    w.update(moe(p))
    w[p + "input_layernorm.weight"] = z(H)
    w[p + "post_attention_layernorm.weight"] = z(H)
    w["mtp.norm.weight"] = z(H)
    w["mtp.pre_fc_norm_embedding.weight"] = z(H)
    w["mtp.pre_fc_norm_hidden.weight"] = z(H)
    w["mtp.fc.weight"] = W(H, 2 * H)
    finish(d, cfg, w)
    tokenizer(d)


if __name__ == "__main__":
    out = sys.argv[1]
    what = sys.argv[2] if len(sys.argv) > 2 else "all"
    if what in ("dense", "all"):
        dense(os.path.join(out, "dense"))
    if what in ("next", "all"):
        qwen3_next(os.path.join(out, "next"))
