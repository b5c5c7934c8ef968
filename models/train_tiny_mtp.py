#!/usr/bin/env python3
# ruff: noqa: E402, PLC0415, PLR0912, PLR0915 - one script, read from top to bottom and run once
"""Train a tiny Qwen3-Next language model with a trained MTP head, in minutes.

train_tiny_mtp.py --out DIR [--minutes 6]   writes DIR/tinymtp/ (as make_model.py's "next") and DIR/tinymtp.tar.xz
The MTP layer is trained as SGLang runs it: it sees the trunk's hidden state AFTER the final norm at t and
the embedding of token t+1 (cat order: embedding, hidden), predicts t+2; steps 2 and 3 feed it its own
normed output, with the KV of step 1 for earlier positions (as draft-extend leaves it). Its target is the
trunk's own (detached) distribution. --minutes is the wall time of the whole run, start to archive.
"""

import argparse
import hashlib
import json
import math
import os
import random
import signal
import sys
import sysconfig
import tarfile
import time

T00 = time.time()
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_model as MM

ap = argparse.ArgumentParser()
ap.add_argument("--out", default=os.environ.get("OUT", "."))
ap.add_argument("--name", default="tinymtp")
ap.add_argument("--minutes", type=float, default=6.0)
ap.add_argument("--reserve", type=float, default=75.0, help="seconds kept for evaluation, saving, checks, archive")
ap.add_argument("--mb", type=float, default=64.0, help="MB of text at most")
ap.add_argument("--batch", type=int, default=64)
ap.add_argument("--seq", type=int, default=512)
ap.add_argument("--lr", type=float, default=2e-3)
ap.add_argument("--warmup", type=int, default=100)
ap.add_argument("--layers", type=int, default=8)
ap.add_argument("--hidden", type=int, default=256)
ap.add_argument("--heads", type=int, default=4)
ap.add_argument("--kv", type=int, default=2)
ap.add_argument("--head-dim", type=int, default=256)
ap.add_argument("--nk", type=int, default=2)
ap.add_argument("--nv", type=int, default=4)
ap.add_argument("--experts", type=int, default=8)
ap.add_argument("--topk", type=int, default=2)
ap.add_argument("--inter", type=int, default=64)
ap.add_argument("--vocab", type=int, default=4096)
ap.add_argument("--untie", action="store_true", help="separate lm_head (default: one table, written under both names)")
ap.add_argument("--mtp-weights", default="0.5,0.35,0.25")
ap.add_argument("--data-dir", action="append", default=[], help="further folders of .py files")
ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
ap.add_argument("--compile", type=int, default=0)
ap.add_argument("--max-steps", type=int, default=10**9)
ap.add_argument("--plan-steps", type=int, default=0, help="cosine over this many steps (default: over the time)")
ap.add_argument("--seed", type=int, default=11)
ap.add_argument("--selftest", action="store_true", help="CPU: random weights, compare with transformers, then exit")
A = ap.parse_args()
DEV = torch.device(A.device)
CUDA = DEV.type == "cuda"
KW = [float(x) for x in A.mtp_weights.split(",")]
NS = len(KW)
DK = DV = 128
EPS, THETA, CH = 1e-6, 10000.0, 64  # theta 10000: SGLang's and transformers' default as well
torch.manual_seed(A.seed)
random.seed(A.seed)
np.random.seed(A.seed)
torch.set_float32_matmul_precision("high")
torch.backends.cuda.enable_cudnn_sdp(False)  # head_dim 256: flash attention
STOP = []
signal.signal(signal.SIGTERM, lambda *_: STOP.append(1))


def say(*a):
    print(f"[{time.time() - T00:6.1f}s]", *a, flush=True)


# ---------------------------------------------------------------- model
class Norm(nn.Module):  # GemmaRMSNorm: weight is added to one
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), 1.0 + self.weight.float(), EPS).to(x.dtype)


class TriInv(torch.autograd.Function):  # (I + L)^-1, L strictly lower, size CH
    @staticmethod
    def forward(ctx, L, levels):
        n = L.shape[-1]
        X = torch.eye(n, device=L.device, dtype=L.dtype).expand_as(L)
        for i, m in enumerate(levels):
            M = L * m
            X = X - (M if i == 0 else X @ M @ X)
        ctx.save_for_backward(X)
        return X

    @staticmethod
    def backward(ctx, dX):
        (X,) = ctx.saved_tensors
        Xt = X.transpose(-1, -2)
        return -(Xt @ dX @ Xt), None


def tri_levels(n, dev):  # level s: lower-left s x s block of each 2s x 2s diagonal block
    i = torch.arange(n, device=dev)
    out, s = [], 1
    while s < n:
        same = (i[:, None] // (2 * s)) == (i[None] // (2 * s))
        out.append((same & ((i[:, None] // s) % 2 == 1) & ((i[None] // s) % 2 == 0)).float())
        s *= 2
    return torch.stack(out)


def l2(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def gated_delta(q, k, v, g, beta, levels):
    """q, k [B,T,Hk,dk], v [B,T,Hv,dv], g, beta [B,T,Hv] -> [B,T,Hv,dv]; all float32, T any."""
    B, T, Hk, dk = k.shape
    Hv = v.shape[2]
    pad = -T % CH
    q, k = l2(q) * dk**-0.5, l2(k)
    if Hv != Hk:
        q, k = (x.repeat_interleave(Hv // Hk, dim=2) for x in (q, k))
    if pad:
        q, k, v = (F.pad(x, (0, 0, 0, 0, 0, pad)) for x in (q, k, v))
        g, beta = (F.pad(x, (0, 0, 0, pad)) for x in (g, beta))
    n = (T + pad) // CH
    q, k, v = (x.transpose(1, 2).reshape(B, Hv, n, CH, -1) for x in (q, k, v))
    g, beta = (x.transpose(1, 2).reshape(B, Hv, n, CH) for x in (g, beta))
    g = g.cumsum(-1)
    eg = g.exp().unsqueeze(-1)
    tril = torch.ones(CH, CH, device=q.device, dtype=torch.bool).tril()
    decay = (g.unsqueeze(-1) - g.unsqueeze(-2)).masked_fill(~tril, float("-inf")).exp()
    kb = k * beta.unsqueeze(-1)
    kt = k.transpose(-1, -2)
    X = TriInv.apply(((kb @ kt) * decay).tril(-1), levels)
    u = X @ (v * beta.unsqueeze(-1))
    w = X @ (kb * eg)
    att = (q @ kt) * decay
    qg = q * eg
    last = g[..., -1:]
    kd = (k * (last - g).exp().unsqueeze(-1)).transpose(-1, -2)
    el = last.exp().unsqueeze(-1)
    u, w, att, qg, kd, el = (x.unbind(2) for x in (u, w, att, qg, kd, el))
    S, out = None, []
    for i in range(n):
        if S is None:
            vn = u[i]
            out.append(att[i] @ vn)
            S = kd[i] @ vn
        else:
            vn = u[i] - w[i] @ S
            out.append(qg[i] @ S + att[i] @ vn)
            S = S * el[i] + kd[i] @ vn
    o = torch.stack(out, 2).reshape(B, Hv, T + pad, -1)[:, :, :T]
    return o.transpose(1, 2)


class GDN(nn.Module):
    def __init__(self):
        super().__init__()
        kd, vd, H = A.nk * DK, A.nv * DV, A.hidden
        self.qkvz = nn.Linear(H, 2 * kd + 2 * vd, bias=False)
        self.ba = nn.Linear(H, 2 * A.nv, bias=False)
        self.conv = nn.Parameter(torch.randn(2 * kd + vd, 4) * 0.3)
        self.out = nn.Linear(vd, H, bias=False)
        self.nw = nn.Parameter(torch.ones(DV))
        dt = torch.exp(torch.rand(A.nv) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.A_log = nn.Parameter(torch.log(torch.empty(A.nv).uniform_(1, 16)))
        self.register_buffer("levels", tri_levels(CH, "cpu"), persistent=False)

    def forward(self, x, cs):
        B, T, _ = x.shape
        r = A.nv // A.nk
        y = self.qkvz(x).view(B, T, A.nk, 2 * DK + 2 * r * DV)
        q, k, v, z = y.split([DK, DK, r * DV, r * DV], -1)
        b, a = self.ba(x).view(B, T, A.nk, 2 * r).split([r, r], -1)
        b, a, z = b.reshape(B, T, A.nv), a.reshape(B, T, A.nv), z.reshape(B, T, A.nv, DV)
        m = torch.cat([t.reshape(B, T, -1) for t in (q, k, v)], -1)
        mp = F.pad(m, (0, 0, 3, 0))
        c = self.conv.to(m.dtype)
        m = F.silu(sum(mp[:, j : j + T] * c[:, j] for j in range(4)))
        with torch.autocast(DEV.type, enabled=False):
            m = m.float()
            q, k, v = m.split([A.nk * DK, A.nk * DK, A.nv * DV], -1)
            g = -self.A_log.float().exp() * F.softplus(a.float() + self.dt_bias.float())
            o = gated_delta(
                q.view(B, T, A.nk, DK),
                k.view(B, T, A.nk, DK),
                v.view(B, T, A.nv, DV),
                g,
                b.float().sigmoid(),
                self.levels,
            )
            o = F.rms_norm(o, (DV,), self.nw.float(), EPS) * F.silu(z.float())
        return self.out(o.reshape(B, T, -1).to(x.dtype))


def rope(x, cs):  # x [B,T,h,d]; the first d/4 dimensions turn, in halves
    cos, sin = cs
    n = cos.shape[-1]
    r, p = x[..., :n], x[..., n:]
    rot = torch.cat([-r[..., n // 2 :], r[..., : n // 2]], -1)
    return torch.cat([r * cos.to(x.dtype) + rot * sin.to(x.dtype), p], -1)


def rope_table(T, dev, start=0):
    n = A.head_dim // 4
    inv = 1.0 / THETA ** (torch.arange(0, n, 2, device=dev).float() / n)
    f = (torch.arange(T, device=dev).float() + start)[:, None] * inv
    f = torch.cat([f, f], -1)[None, :, None]
    return f.cos(), f.sin()


class Attn(nn.Module):
    def __init__(self):
        super().__init__()
        H, d = A.hidden, A.head_dim
        self.q = nn.Linear(H, 2 * A.heads * d, bias=False)
        self.k = nn.Linear(H, A.kv * d, bias=False)
        self.v = nn.Linear(H, A.kv * d, bias=False)
        self.o = nn.Linear(A.heads * d, H, bias=False)
        self.qn, self.kn = Norm(d), Norm(d)

    def forward(self, x, cs, past=None, keep=None):
        """past: (k, v) of each recursive step; the first is attended causally, the others at one's own place."""
        B, T, _ = x.shape
        d = A.head_dim
        q, gate = self.q(x).view(B, T, A.heads, 2 * d).chunk(2, -1)
        q = rope(self.qn(q), cs).transpose(1, 2)
        rep = A.heads // A.kv
        k = rope(self.kn(self.k(x).view(B, T, A.kv, d)), cs).transpose(1, 2).repeat_interleave(rep, 1)
        v = self.v(x).view(B, T, A.kv, d).transpose(1, 2).repeat_interleave(rep, 1)
        if keep is not None:
            keep.append((k, v))
        if not past:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            k0, v0 = past[0]
            s = (q @ k0.transpose(-1, -2)).float()
            s = s.masked_fill(~torch.ones(T, T, device=x.device, dtype=torch.bool).tril(), float("-inf"))
            extra = [(q.float() * kk.float()).sum(-1, keepdim=True) for kk, _ in [*past[1:], (k, v)]]
            p = (torch.cat([s, *extra], -1) * d**-0.5).softmax(-1).to(q.dtype)
            o = p[..., :T] @ v0
            for j, (_, vv) in enumerate([*past[1:], (k, v)]):
                o = o + p[..., T + j : T + j + 1] * vv
        o = o.transpose(1, 2) * torch.sigmoid(gate)
        return self.o(o.reshape(B, T, -1))


class MoE(nn.Module):  # all experts computed densely, unchosen ones weighted 0; the last is the shared one
    def __init__(self):
        super().__init__()
        H, E, m = A.hidden, A.experts, A.inter
        self.gate = nn.Linear(H, E, bias=False)
        self.sgate = nn.Linear(H, 1, bias=False)
        self.gu = nn.Parameter(torch.randn(E + 1, 2 * m, H) * 0.02)
        self.dn = nn.Parameter(torch.randn(E + 1, H, m) * 0.02)
        self.aux = None

    def forward(self, x):
        B, T, H = x.shape
        E, m = A.experts, A.inter
        p = self.gate(x).float().softmax(-1)
        t, i = p.topk(A.topk, -1)
        w = torch.zeros_like(p).scatter(-1, i, t / t.sum(-1, keepdim=True))
        if self.training:
            self.aux = E * ((w > 0).float().mean((0, 1)) / A.topk * p.mean((0, 1))).sum()
        w = torch.cat([w, torch.sigmoid(self.sgate(x).float())], -1).to(x.dtype)
        y = F.linear(x, self.gu.reshape(-1, H)).view(B, T, E + 1, 2, m)
        y = F.silu(y[..., 0, :]) * y[..., 1, :] * w.unsqueeze(-1)
        return F.linear(y.reshape(B, T, -1), self.dn.permute(1, 0, 2).reshape(H, -1))


class Layer(nn.Module):
    def __init__(self, full):
        super().__init__()
        self.full = full
        self.n1, self.n2 = Norm(A.hidden), Norm(A.hidden)
        self.mix = Attn() if full else GDN()
        self.moe = MoE()

    def forward(self, x, cs, **kw):
        x = x + self.mix(self.n1(x), cs, **kw)
        return x + self.moe(self.n2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        H = A.hidden
        self.emb = nn.Embedding(A.vocab, H)
        self.layers = nn.ModuleList(Layer((i + 1) % 4 == 0) for i in range(A.layers))
        self.norm = Norm(H)
        self.head = nn.Linear(H, A.vocab, bias=False)
        self.mfc = nn.Linear(2 * H, H, bias=False)
        self.mne, self.mnh, self.mn = Norm(H), Norm(H), Norm(H)
        self.mlayer = Layer(True)
        for n, p in self.named_parameters():
            if p.dim() >= 2 and not n.endswith("conv"):
                s = 0.05 if n.startswith("emb") else 0.02 if n.startswith("head") else 0.6 * p.shape[-1] ** -0.5
                if n.endswith(("mix.o.weight", "mix.out.weight", "dn")):
                    s /= math.sqrt(2 * A.layers)
                nn.init.normal_(p, std=s)
        if not A.untie:
            self.head.weight = self.emb.weight

    def trunk(self, ids):
        x = self.emb(ids)
        cs = rope_table(ids.shape[1], ids.device)
        for layer in self.layers:
            x = layer(x, cs)
        return self.norm(x)

    def mtp(self, toks, hid, start, past, keep):
        """one step: hid at p, toks = the token after it; returns the normed output, also the next step's hid."""
        x = self.mfc(torch.cat([self.mne(self.emb(toks)), self.mnh(hid)], -1))
        x = self.mlayer(x, rope_table(toks.shape[1], toks.device, start), past=past, keep=keep)
        return self.mn(x)

    def mtp_steps(self, ids, h, n, steps=NS):
        out, past, m = [], [], h[:, :n]
        for s in range(steps):
            keep = []
            m = self.mtp(ids[:, s + 1 : s + 1 + n], m, s, list(past), keep)
            past += keep
            out.append(m)
        return out


def ctx():
    return torch.autocast(DEV.type, dtype=torch.bfloat16, enabled=CUDA)


def losses(M, ids):  # ids [B, T+1]
    x, T = ids[:, :-1], ids.shape[1] - 1
    h = M.trunk(x)
    lg = M.head(h)
    main = F.cross_entropy(lg.float().flatten(0, 1), ids[:, 1:].flatten())
    n, ml = T - NS, []
    tgt = lg.detach().float().softmax(-1)
    for s, m in enumerate(M.mtp_steps(ids, h, n)):
        lp = M.head(m).float().log_softmax(-1)
        ml.append(-(tgt[:, s + 1 : s + 1 + n] * lp).sum(-1).mean())
    aux = sum(layer.moe.aux for layer in [*list(M.layers), M.mlayer])
    return main, ml, aux


# ---------------------------------------------------------------- weights under the published names
def export(M):
    w = {"model.embed_tokens.weight": M.emb.weight, "model.norm.weight": M.norm.weight, "lm_head.weight": M.head.weight}

    def layer(p, block):
        w[p + "input_layernorm.weight"], w[p + "post_attention_layernorm.weight"] = block.n1.weight, block.n2.weight
        x = block.mix
        if block.full:
            for a in "qkvo":
                w[f"{p}self_attn.{a}_proj.weight"] = getattr(x, a).weight
            w[p + "self_attn.q_norm.weight"], w[p + "self_attn.k_norm.weight"] = x.qn.weight, x.kn.weight
        else:
            q = p + "linear_attn."
            w[q + "in_proj_qkvz.weight"], w[q + "in_proj_ba.weight"] = x.qkvz.weight, x.ba.weight
            w[q + "conv1d.weight"], w[q + "out_proj.weight"] = x.conv.unsqueeze(1), x.out.weight
            w[q + "norm.weight"], w[q + "dt_bias"], w[q + "A_log"] = x.nw, x.dt_bias, x.A_log
        e = block.moe
        w[p + "mlp.gate.weight"], w[p + "mlp.shared_expert_gate.weight"] = e.gate.weight, e.sgate.weight
        for i in range(A.experts + 1):
            q = p + (f"mlp.experts.{i}." if i < A.experts else "mlp.shared_expert.")
            w[q + "gate_proj.weight"], w[q + "up_proj.weight"] = e.gu[i, : A.inter], e.gu[i, A.inter :]
            w[q + "down_proj.weight"] = e.dn[i]

    for i, block in enumerate(M.layers):
        layer(f"model.layers.{i}.", block)
    layer("mtp.layers.0.", M.mlayer)
    w["mtp.norm.weight"], w["mtp.fc.weight"] = M.mn.weight, M.mfc.weight
    w["mtp.pre_fc_norm_embedding.weight"], w["mtp.pre_fc_norm_hidden.weight"] = M.mne.weight, M.mnh.weight
    return {k: v.detach().to("cpu", torch.bfloat16).contiguous().clone() for k, v in w.items()}


def config():
    """make_model.py's own config and tensor list (its tensors are random and thrown away), shrunk."""
    got = {}
    fin, tok, voc = MM.finish, MM.tokenizer, MM.VOCAB
    MM.finish, MM.tokenizer, MM.VOCAB = (lambda d, c, w: got.update(cfg=c, w=w)), (lambda *a, **k: None), A.vocab
    try:
        MM.qwen3_next(
            os.path.join(A.out, A.name),
            L=A.layers,
            H=A.hidden,
            nh=A.heads,
            nkv=A.kv,
            hd=A.head_dim,
            nk=A.nk,
            nv=A.nv,
            dk=DK,
            dv=DV,
            E=A.experts,
            topk=A.topk,
            mi=A.inter,
        )
    finally:
        MM.finish, MM.tokenizer, MM.VOCAB = fin, tok, voc
    got["cfg"].update(rope_theta=THETA, intermediate_size=2 * A.hidden)
    return got["cfg"], {k: tuple(v.shape) for k, v in got["w"].items()}


def save(M, d, cfg, shapes):
    w = export(M)
    have = {k: tuple(v.shape) for k, v in w.items()}
    assert have == shapes, (
        "names or shapes differ from make_model.py",
        set(have) ^ set(shapes),
        [k for k in have if k in shapes and have[k] != shapes[k]],
    )
    bad = [k for k, v in w.items() if not torch.isfinite(v.float()).all()]
    assert not bad, ("not finite", bad)
    MM.write_json(os.path.join(d, "config.json"), cfg)
    save_file(w, os.path.join(d, "model.safetensors"), metadata={"format": "pt"})
    os.chmod(os.path.join(d, "model.safetensors"), 0o644)
    n = sum(v.numel() for v in w.values())
    say(
        f"saved {d}: {len(w)} tensors (same names and shapes as make_model.py), {n / 1e6:.2f} M numbers stored, "
        f"{sum(p.numel() for p in M.parameters()) / 1e6:.2f} M of their own"
    )
    return w


def load_rounded(M):
    """the bf16 weights, back in a float32 copy of the training module on the CPU"""
    import copy

    for x in M.modules():
        if isinstance(x, MoE):
            x.aux = None  # a graph's leaf-less tensor: not for copying
    C = copy.deepcopy(M).to("cpu").float()
    with torch.no_grad():
        for p in C.parameters():
            p.copy_(p.to(torch.bfloat16).float())
    return C.eval()


def verify(M, d, ids, low=0.85):
    from transformers import AutoModelForCausalLM
    from transformers import __version__ as tv

    global DEV, CUDA
    keep = DEV, CUDA
    DEV, CUDA = torch.device("cpu"), False
    try:
        C = load_rounded(M)
        ids = ids.cpu()
        out = []
        for dt in (torch.float32, torch.bfloat16):
            try:
                R = AutoModelForCausalLM.from_pretrained(d, dtype=dt)
            except TypeError:
                R = AutoModelForCausalLM.from_pretrained(d, torch_dtype=dt)
            R.eval()
            with torch.no_grad():
                a = C.head(C.trunk(ids))
                b = R.to("cpu")(input_ids=ids, use_cache=False).logits.float()
            err = (a - b).abs().max().item() / a.abs().max().item()
            mean = (a - b).abs().mean().item() / a.std().item()
            agree = (a.argmax(-1) == b.argmax(-1)).float().mean().item()
            out.append((str(dt), err, agree))
            say(
                f"check against transformers {tv} in {dt}: largest logit difference / largest logit {err:.2e}, "
                f"mean difference / spread {mean:.2e}, same argmax {agree:.4f}"
            )
        assert out[0][1] < 2e-3, "training module and transformers differ"
        assert out[1][2] > low, "bf16 differs too much"
        say("CHECK OK: transformers' logits are the training module's")
    finally:
        DEV, CUDA = keep


# ---------------------------------------------------------------- data
def texts():
    pth = sysconfig.get_paths()
    roots, seen = [], set()
    for folder in [pth["stdlib"], pth["purelib"], pth["platlib"]] + A.data_dir + [p for p in sys.path if "site" in p]:
        r = os.path.realpath(folder)
        if os.path.isdir(r) and r not in roots:
            roots.append(r)
    first, rest = [], []
    for r in roots:
        for dp, dn, fn in os.walk(r):
            if r == roots[0] and os.path.basename(dp) in ("site-packages", "dist-packages"):
                dn[:] = []
                continue
            if r == roots[0]:
                dn[:] = [x for x in dn if x not in ("test", "tests", "idle_test")]
            dn[:] = sorted(x for x in dn if x not in ("__pycache__", "node_modules", "idlelib", "lib2to3"))
            for f in sorted(fn):
                if f.endswith(".py"):
                    p = os.path.realpath(os.path.join(dp, f))
                    if p not in seen:
                        seen.add(p)
                        (first if r == roots[0] else rest).append(p)
    rng = random.Random(5)
    rng.shuffle(first)
    rng.shuffle(rest)
    tr, ho, n, hs = [], [], 0, set()
    for p in first + rest:
        if n > A.mb * 1e6:
            break
        try:
            if not 400 < os.path.getsize(p) < 300_000:
                continue
            with open(p, encoding="utf-8") as f:
                s = f.read()
        except Exception:
            continue
        h = hashlib.sha1(s.encode("utf-8", "replace")).digest()
        if h in hs or max(map(len, s.split("\n"))) > 2000:
            continue
        hs.add(h)
        n += len(s)
        (ho if h[0] < 6 else tr).append(s)
    say(f"text: {len(tr)} files train, {len(ho)} held out, {n / 1e6:.1f} MB, from {roots}")
    return tr, ho


def build_tokenizer(d, tr):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    sub, n = [], 0
    for s in random.Random(3).sample(tr, len(tr)):
        sub.append(s)
        n += len(s)
        if n > 12e6:
            break
    t.train_from_iterator(
        sub,
        trainers.BpeTrainer(
            vocab_size=A.vocab - 64,
            special_tokens=MM.SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    t.save(os.path.join(d, "tokenizer.json"))
    MM.write_json(
        os.path.join(d, "tokenizer_config.json"),
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 32768,
            "clean_up_tokenization_spaces": False,
            "chat_template": MM.CHAT,
        },
    )
    MM.write_json(
        os.path.join(d, "generation_config.json"),
        {"eos_token_id": 2, "pad_token_id": 0, "transformers_version": "5.12.1"},
    )
    return t


def encode(t, docs):
    out, step = [], 512
    for i in range(0, len(docs), step):
        for e in t.encode_batch(docs[i : i + step]):
            out.append(np.array([*e.ids, 0], dtype=np.int32))
    return torch.from_numpy(np.concatenate(out))


# ---------------------------------------------------------------- evaluation
@torch.no_grad()
def evaluate(M, ids, t):
    M.eval()
    T = min(A.seq, 512)
    nb = max(1, min(len(ids) // (T + 1), 64 if CUDA else 4))
    hit, tot, ce = [0.0] * NS, 0, 0.0
    chain = [0.0] * NS
    for b in range(0, nb, 16):
        x = torch.stack([ids[i * (T + 1) : (i + 1) * (T + 1)] for i in range(b, min(b + 16, nb))]).long().to(DEV)
        with ctx():
            h = M.trunk(x[:, :-1])
            lg = M.head(h).float()
            n = T - NS
            ms = [M.head(m).argmax(-1) for m in M.mtp_steps(x, h, n)]
        ce += F.cross_entropy(lg.flatten(0, 1), x[:, 1:].flatten(), reduction="sum").item()
        top, ok = lg.argmax(-1), None
        for s in range(NS):
            e = ms[s] == top[:, s + 1 : s + 1 + n]
            ok = e if ok is None else ok & e
            hit[s] += e.sum().item()
            chain[s] += ok.sum().item()
        tot += x.shape[0] * n
    say(
        f"held out, teacher-forced: loss {ce / (nb * T):.3f} nats/token; MTP argmax = trunk argmax at step "
        + ", ".join(f"{s + 1}: {hit[s] / tot:.3f}" for s in range(NS))
        + "; all steps so far: "
        + ", ".join(f"{c / tot:.3f}" for c in chain)
    )
    # what a server would see: greedy text of the trunk itself, chains of NS drafts
    P, G, N = (96, 160, 48) if CUDA else (24, 24, 2)
    st = torch.randint(0, max(1, len(ids) - P - 1), (N,), generator=torch.Generator().manual_seed(1))
    x = torch.stack([ids[s : s + P] for s in st]).long().to(DEV)
    for _ in range(G):
        with ctx():
            x = torch.cat([x, M.head(M.trunk(x)[:, -1]).argmax(-1, keepdim=True)], 1)
    with ctx():
        n = x.shape[1] - NS - 1
        ms = [M.head(m).argmax(-1) for m in M.mtp_steps(x, M.trunk(x), n)]
    acc, rounds = 0, 0
    eq = torch.stack([ms[s] == x[:, s + 2 : s + 2 + n] for s in range(NS)], -1).cpu()
    for r in range(N):
        p = P - 1  # x[p+1], the first generated token, is known from the prefill
        while p < n:
            a = int(eq[r, p].long().cumprod(0).sum())
            acc += a + 1
            rounds += 1
            p += a + 1
    say(
        f"greedy generation ({N} prompts x {G} tokens): estimated acceptance length with {NS} draft steps "
        f"{acc / max(1, rounds):.2f} tokens per round (1 = nothing accepted)"
    )
    for r in range(min(3, N)):
        say(
            "sample:",
            json.dumps(t.decode(x[r, P - 24 : P].tolist()))[-100:],
            "->",
            json.dumps(t.decode(x[r, P : P + 60].tolist()))[:260],
        )
    M.train()
    return acc / max(1, rounds)


# ---------------------------------------------------------------- runs
def selftest(d, cfg, shapes):
    os.makedirs(d, exist_ok=True)
    M = Model()
    with torch.no_grad():
        for n, p in M.named_parameters():
            if p.dim() == 1 and "A_log" not in n and "dt_bias" not in n:
                p.add_(torch.randn_like(p) * 0.2)
            elif p.dim() >= 2:
                p.mul_(2.0 if n.startswith("emb") else 1.5)
    save(M, d, cfg, shapes)
    ids = torch.randint(3, A.vocab, (2, 200))
    verify(M, d, ids, low=0.0)  # random weights: experts flip in bf16
    # recursive steps in one pass = the same steps done one position at a time
    C = load_rounded(M)
    with torch.no_grad():
        h = C.trunk(ids[:, :40])
        par = C.mtp_steps(ids[:, :40], h, 30)
        for p in (5, 29):
            hid, pre = h[:, : p + 1], ids[:, 1 : p + 2]
            m = None
            X = C.mfc(torch.cat([C.mne(C.emb(pre)), C.mnh(hid)], -1))
            seq = [X]
            m = C.mn(C.mlayer(X, rope_table(p + 1, "cpu")))[:, -1:]
            errs = [(m[:, 0] - par[0][:, p]).abs().max().item()]
            for s in range(1, NS):
                seq.append(C.mfc(torch.cat([C.mne(C.emb(ids[:, p + 1 + s : p + 2 + s])), C.mnh(m)], -1)))
                Y = torch.cat(seq, 1)
                m = C.mn(C.mlayer(Y, rope_table(Y.shape[1], "cpu")))[:, -1:]
                errs.append((m[:, 0] - par[s][:, p]).abs().max().item())
            say(
                f"recursive MTP steps against one-by-one at position {p}: "
                f"largest differences {[f'{e:.1e}' for e in errs]}"
            )
            assert max(errs) < 1e-3
    # gradient of the block inverse against torch.linalg
    L = (torch.randn(3, CH, CH) * 0.3).tril(-1).requires_grad_()
    y = TriInv.apply(L, tri_levels(CH, "cpu"))
    z = torch.randn_like(y)
    (g1,) = torch.autograd.grad((y * z).sum(), L)
    (g2,) = torch.autograd.grad((torch.linalg.inv((torch.eye(CH) + L).double()).float() * z).sum(), L)
    e = ((g1 - g2).tril(-1).abs().max() / g2.tril(-1).abs().max()).item()
    say(f"block inverse gradient: relative difference {e:.1e}")
    assert e < 1e-3
    say("SELFTEST OK")


def main():
    d = os.path.join(A.out, A.name)
    cfg, shapes = config()
    if A.selftest:
        return selftest(d, cfg, shapes)
    os.makedirs(d, exist_ok=True)
    deadline = T00 + A.minutes * 60 - A.reserve
    say(f"device {torch.cuda.get_device_name() if CUDA else 'cpu'}, torch {torch.__version__}")
    tr, ho = texts()
    t = build_tokenizer(d, tr)
    say("tokenizer trained")
    train, held = encode(t, tr), encode(t, ho)
    say(f"tokens: {len(train) / 1e6:.2f} M train, {len(held) / 1e6:.2f} M held out")
    data = train.to(DEV)  # int32 on the device: gathers there
    M = Model().to(DEV).train()
    say(f"model: {sum(p.numel() for p in M.parameters()) / 1e6:.2f} M parameters")
    dec = [p for p in M.parameters() if p.dim() >= 2]
    nod = [p for p in M.parameters() if p.dim() < 2]

    def adam():
        return torch.optim.AdamW(
            [{"params": dec, "weight_decay": 0.1}, {"params": nod, "weight_decay": 0.0}],
            lr=A.lr,
            betas=(0.9, 0.95),
            fused=CUDA,
        )

    opt, good, fails = adam(), None, 0
    if A.compile:
        for layer in M.layers:
            layer.compile(dynamic=False)
    bs, step, t0, seen, cur = A.batch, 0, time.time(), 0, None
    ar = torch.arange(A.seq + 1, device=DEV)
    while step < A.max_steps and not STOP:
        now = time.time()
        f = step / A.plan_steps if A.plan_steps else (now - t0) / max(1.0, deadline - t0)
        if f >= 1.0 or now > deadline:
            break
        lr = A.lr * min(1.0, (step + 1) / A.warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * f)))
        for gr in opt.param_groups:
            gr["lr"] = lr
        if cur is None or cur[1] is not None:
            cur = [torch.randint(0, len(data) - A.seq - 2, (A.batch,), device=DEV), None]
        try:
            for c in cur[0].split(bs):
                ids = data[c[:, None] + ar].long()
                with ctx():
                    main_l, ml, aux = losses(M, ids)
                    loss = main_l + sum(w * part for w, part in zip(KW, ml, strict=True)) + 0.01 * aux
                (loss * (len(c) / A.batch)).backward()
            cur[1] = True
        except torch.OutOfMemoryError:
            opt.zero_grad(set_to_none=True)
            loss = main_l = ml = aux = None
            torch.cuda.empty_cache()
            if bs == 1:
                raise
            bs = max(1, bs // 2)
            say(f"out of memory: {bs} sequences at a time from here")
            continue
        except Exception as e:
            if A.compile and step == 0:
                say(f"compile failed ({type(e).__name__}), going on without")
                A.compile = 0
                for layer in M.layers:
                    layer._compiled_call_impl = None
                opt.zero_grad(set_to_none=True)
                continue
            raise
        gn = nn.utils.clip_grad_norm_(M.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        seen += A.batch * A.seq
        if step in (1, 2, 5, 10, 20, 50) or step % 100 == 0:
            mem = torch.cuda.max_memory_allocated() / 2**30 if CUDA else 0
            v = [main_l.item()] + [x.item() for x in ml]
            dt = time.time() - t0
            say(
                f"step {step} loss {v[0]:.3f} mtp "
                + " ".join(f"{x:.3f}" for x in v[1:])
                + f" aux {aux.item() / (A.layers + 1):.2f} |g| {gn.item():.2f} lr {lr:.1e} "
                + f"{seen / dt / 1e3:.1f} k tokens/s, {mem:.1f} GiB"
            )
            if all(math.isfinite(y) for y in [*v, gn.item()]):
                good = [p.detach().clone() for p in M.parameters()]
            else:  # back to the last good weights, with half the rate
                fails += 1
                if good is None or fails > 5:
                    raise SystemExit("loss is not finite")
                say("not finite: going back to the last good weights, half the rate")
                with torch.no_grad():
                    for p, q in zip(M.parameters(), good, strict=True):
                        p.copy_(q)
                A.lr *= 0.5
                opt = adam()
    say(f"trained: {step} steps, {seen / 1e6:.1f} M tokens, {seen / max(1, len(train)):.1f} times over the text")
    if good and not all(torch.isfinite(p).all() for p in M.parameters()):
        with torch.no_grad():
            for p, q in zip(M.parameters(), good, strict=True):
                p.copy_(q)
    save(M, d, cfg, shapes)  # before anything that could fail
    try:
        evaluate(M.eval(), held, t)
    except Exception as e:
        say("evaluation failed:", repr(e)[:300])
    tar = os.path.join(A.out, A.name + ".tar.xz")
    with tarfile.open(tar, "w:xz", preset=6) as f:
        f.add(d, arcname=A.name)
    say(
        f"{tar}: {os.path.getsize(tar) / 1e6:.2f} MB "
        f"(model.safetensors {os.path.getsize(os.path.join(d, 'model.safetensors')) / 1e6:.2f} MB)"
    )
    try:
        verify(M, d, held[:400].long().view(2, 200))
        from transformers import AutoTokenizer

        s = "import os\n\ndef main(argv):\n    return os.path.join('a', 'b')\n"
        a = AutoTokenizer.from_pretrained(d)
        assert a(s)["input_ids"] == t.encode(s).ids
        assert a.decode(a(s)["input_ids"]) == s
        say("tokenizer loads and round-trips")
    except Exception as e:
        say("VERIFICATION FAILED:", repr(e)[:500])
        sys.exit(3)
    say("done")
    return None


if __name__ == "__main__":
    main()
