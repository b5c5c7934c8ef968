"""What of a model decides about its communication, read from its ``config.json``, and how it is laid over GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


class ShapeError(Exception):
    """A config.json or a layout that cannot be understood; the text is one sentence."""


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a model that decide what travels between GPUs.

    Attributes:
        hidden: width of what travels between layers.
        layers: decoder layers; ``linear_layers`` of them have linear attention (GDN), ``moe_layers`` of them experts.
        experts_per_token: experts that a token goes to, the shared one not counted.
        draft_layers: layers of the multi-token-prediction head; 0 without one.
        element_bytes: of an activation.
    """

    hidden: int
    layers: int
    vocabulary: int
    moe_layers: int = 0
    linear_layers: int = 0
    experts_per_token: int = 0
    draft_layers: int = 0
    element_bytes: int = 2

    @property
    def row_bytes(self) -> int:
        """One token's activations: 8 KiB for a hidden width of 4096 in bf16."""
        return self.hidden * self.element_bytes

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ModelShape:
        """Read a ``config.json``; that of a multimodal model holds the language model's under ``text_config``.

        Raises:
            ShapeError: width, layers or vocabulary are missing.
        """
        text: Mapping[str, Any] = config.get("text_config") or config
        try:
            hidden, layers = int(text["hidden_size"]), int(text["num_hidden_layers"])
            vocabulary = int(text["vocab_size"])
        except KeyError as missing:
            raise ShapeError(
                f"config.json has no {missing}, so collectives cannot be counted; name another model"
            ) from None
        dtype = str(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or "bfloat16")
        draft = _first(text, "mtp_num_hidden_layers", "num_nextn_predict_layers")
        return cls(
            hidden,
            layers,
            vocabulary,
            _moe_layers(text, layers),
            _linear_layers(text, layers),
            _first(text, "num_experts_per_tok", "moe_topk"),
            draft or _first(config, "mtp_num_hidden_layers", "num_nextn_predict_layers"),
            _BYTES.get(dtype.removeprefix("torch."), 2),
        )

    @classmethod
    def from_folder(cls, folder: str | Path) -> ModelShape:
        """Read the ``config.json`` in a model's folder.

        Raises:
            ShapeError: there is none, or it cannot be understood.
        """
        path = Path(folder) / "config.json"
        try:
            config = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ShapeError(f"{path} cannot be read ({error}); name the model's folder") from None
        return cls.from_config(config)


def _first(config: Mapping[str, Any], *names: str) -> int:
    return next((int(config[name]) for name in names if config.get(name)), 0)


def _moe_layers(text: Mapping[str, Any], layers: int) -> int:
    if not _first(text, "num_experts", "n_routed_experts", "num_local_experts"):
        return 0
    step = _first(text, "decoder_sparse_step", "moe_layer_freq") or 1
    dense = set(text.get("mlp_only_layers") or ())
    begin = _first(text, "first_k_dense_replace")
    return sum(layer >= begin and layer not in dense and (layer + 1) % step == 0 for layer in range(layers))


def _linear_layers(text: Mapping[str, Any], layers: int) -> int:
    kinds = text.get("layer_types")
    if kinds:
        return sum(kind == "linear_attention" for kind in kinds)
    interval = _first(text, "full_attention_interval")
    return layers - layers // interval if interval else 0


@dataclass(frozen=True)
class Layout:
    """How one copy of the model lies over GPUs. ``attention_data`` is the width of attention data parallelism.

    ``all_to_all``: experts get their tokens by dispatch and combine (DeepEP and its like), not by an all-reduce;
    experts that are only spread (``expert_parallel`` without it) change nothing in what is sent.
    """

    tensor: int = 1
    pipeline: int = 1
    attention_data: int = 1
    expert_parallel: int = 1
    all_to_all: bool = False

    def __post_init__(self) -> None:
        if min(self.tensor, self.pipeline, self.attention_data, self.expert_parallel) < 1:
            raise ShapeError(f"{self} has a width below 1; every width is at least 1")
        if self.tensor % self.attention_data:
            raise ShapeError(
                f"attention data parallelism of {self.attention_data} does not divide tensor parallelism of "
                f"{self.tensor}; choose a divisor"
            )

    @property
    def attention_tensor(self) -> int:
        """GPUs over which one attention layer is split."""
        return self.tensor // self.attention_data

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> Layout:
        """The layout of SGLang's flags."""

        def number(*names: str) -> int:
            return next((int(flags[name]) for name in names if flags.get(name) is not None), 1)

        all_to_all = str(flags.get("--moe-a2a-backend") or "none") != "none"
        tensor = number("--tp-size", "--tp", "--tensor-parallel-size")
        return cls(
            tensor,
            number("--pp-size", "--pp", "--pipeline-parallel-size"),
            number("--dp-size", "--dp", "--data-parallel-size") if flags.get("--enable-dp-attention") else 1,
            tensor if all_to_all else number("--ep-size", "--ep", "--expert-parallel-size"),
            all_to_all,
        )


@dataclass(frozen=True)
class Speculation:
    """Drafting: ``steps`` tokens deep, ``topk`` wide, ``draft_tokens`` verified at once."""

    steps: int
    topk: int = 1
    draft_tokens: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.topk < 1:
            raise ShapeError(
                f"speculation of {self.steps} steps and top {self.topk} drafts nothing; both are at least 1"
            )
        if self.topk == 1 or not self.draft_tokens:
            # with one candidate a step SGLang itself sets so many
            object.__setattr__(self, "draft_tokens", self.steps * self.topk + 1)

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> Speculation | None:
        """The speculation of SGLang's flags, ``None`` without any (or of a kind that drafts without a model)."""
        if str(flags.get("--speculative-algorithm")) not in ("NEXTN", "EAGLE", "EAGLE3"):
            return None
        steps = int(flags.get("--speculative-num-steps") or 3)
        topk = int(flags.get("--speculative-eagle-topk") or 1)
        return cls(steps, topk, int(flags.get("--speculative-num-draft-tokens") or 0))
