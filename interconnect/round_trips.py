"""Round trips: which collectives a forward pass and a decoding step make, how large, and how many an output token pays.

Counted from the model's shape as SGLang lays it out (its qwen3_next, logits processor, vocabulary embedding, DP
attention and EAGLE worker were read for it, 0.5.23). Fused all-reduces count as all-reduces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from interconnect.model_shape import Layout, ModelShape, Speculation

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send"]
_TOKEN_BYTES = 4


@dataclass(frozen=True)
class Collective:
    """Equal collectives of one place in the model.

    Attributes:
        kind: what is done.
        where: for whom, in words.
        count: how many follow one another on a token's way (over all pipeline stages).
        ranks: GPUs that take part in each.
        message_bytes: the whole tensor: what an all-reduce sums, what an all-gather ends with.
        share: the part of them that one GPU takes part in (its stage's, with pipeline parallelism).
    """

    kind: Kind
    where: str
    count: int
    ranks: int
    message_bytes: int
    share: float = 1.0

    @property
    def ring_bytes(self) -> float:
        """Bytes that one GPU must send for one of them, by a ring: the floor of what is possible."""
        n = self.ranks
        if self.kind == "send":
            return float(self.message_bytes)
        part = (n - 1) / n * self.message_bytes
        return 2 * part if self.kind == "all-reduce" else part


def forward_pass(
    shape: ModelShape, layout: Layout, rows: int, *, logits_rows: int | None = None, draft: bool = False
) -> tuple[Collective, ...]:
    """The collectives of one forward pass over ``rows`` tokens (of all data-parallel ranks together).

    ``logits_rows``: tokens whose logits are wanted, all of them by default; ``draft``: the pass of the MTP head, which
    runs in the last pipeline stage.
    """
    wanted = rows if logits_rows is None else logits_rows
    return tuple(found for found in _passed(shape, layout, rows, wanted, draft) if found.ranks > 1 and found.count)


def _passed(shape: ModelShape, layout: Layout, rows: int, logits_rows: int, draft: bool) -> Iterator[Collective]:
    message = rows * shape.row_bytes
    own = message // layout.attention_data
    layers = max(1, shape.draft_layers) if draft else shape.layers
    moe = layers if draft and shape.moe_layers else 0 if draft else shape.moe_layers
    share = 1.0 if draft else 1 / layout.pipeline
    tensor, attention = layout.tensor, layout.attention_tensor
    yield Collective("all-reduce", "embedding", 1, attention, own, share)
    if layout.attention_data > 1:
        yield Collective("reduce-scatter", "attention", layers, attention, own, share)
        yield from _gathered_experts(layout, layers, moe, message, share, shape)
        yield Collective("all-gather", "layer's end", layers, attention, own, share)
    elif layout.all_to_all and moe:
        yield Collective("reduce-scatter", "attention", moe, tensor, message, share)
        yield from _exchanged_experts(layout, moe, message, share, shape)
        yield Collective("all-gather", "layer's end", moe, tensor, message, share)
        yield Collective("all-reduce", "attention of dense layers", layers - moe, tensor, message, share)
        yield Collective("all-reduce", "dense layers", layers - moe, tensor, message, share)
    else:
        yield Collective("all-reduce", "attention", layers, tensor, message, share)
        yield Collective("all-reduce", "experts or dense part", layers, tensor, message, share)
    if not draft and layout.pipeline > 1:
        # hidden states and residual; each GPU but those of the last stage sends once
        stages = layout.pipeline
        yield Collective("send", "between stages", stages - 1, stages, 2 * own, 1 / stages)
    logits = logits_rows * shape.vocabulary * shape.element_bytes
    yield Collective("all-gather", "logits", 1, tensor, logits, share)


def _gathered_experts(
    layout: Layout, layers: int, moe: int, message: int, share: float, shape: ModelShape
) -> Iterator[Collective]:
    """What stands between data-parallel attentions: every rank gathers all tokens, or experts exchange them."""
    exchanged = moe if layout.all_to_all else 0
    yield Collective("all-gather", "tokens of all data ranks", layers - exchanged, layout.tensor, message, share)
    yield Collective("reduce-scatter", "tokens of all data ranks", layers - exchanged, layout.tensor, message, share)
    yield from _exchanged_experts(layout, exchanged, message, share, shape)


def _exchanged_experts(layout: Layout, moe: int, message: int, share: float, shape: ModelShape) -> Iterator[Collective]:
    # each token goes to at most so many GPUs; the message is what one GPU's tokens make together
    copies = min(max(1, shape.experts_per_token), layout.tensor)
    sent = message * copies // layout.tensor
    yield Collective("all-to-all", "dispatch to experts", moe, layout.tensor, sent, share)
    yield Collective("all-to-all", "combine of experts", moe, layout.tensor, sent, share)


def decoding_step(
    shape: ModelShape,
    layout: Layout,
    concurrency: int,
    speculation: Speculation | None = None,
    *,
    sampled: bool = False,
) -> tuple[Collective, ...]:
    """The collectives between two moments at which every request has got its next tokens.

    With speculation: one verifying pass of the target, ``steps - 1`` passes of the draft (the first drafted token falls
    out of the extending pass), one pass that extends the draft by what was accepted, and, when tokens are
    ``sampled`` and not the most likely ones, three small broadcasts that keep the ranks agreed.
    """
    if speculation is None:
        return forward_pass(shape, layout, concurrency)
    verified = concurrency * speculation.draft_tokens
    drafts = forward_pass(shape, layout, concurrency * speculation.topk, draft=True)
    collectives = [*forward_pass(shape, layout, verified)]
    collectives += [one for _ in range(speculation.steps - 1) for one in drafts]
    collectives += forward_pass(shape, layout, verified, draft=True)
    if sampled and layout.attention_tensor > 1:
        token_bytes = verified * _TOKEN_BYTES
        collectives.append(Collective("broadcast", "accepted tokens", 3, layout.attention_tensor, token_bytes))
    return tuple(collectives)


def count(collectives: Sequence[Collective], kind: Kind | None = None) -> int:
    """How many there are (of a kind)."""
    return sum(one.count for one in collectives if kind is None or one.kind == kind)


def per_output_token(collectives: Sequence[Collective], acceptance_length: float = 1.0) -> float:
    """Collectives that a request waits for per token that it gets; ``acceptance_length`` tokens come of a step."""
    if acceptance_length < 1:
        raise ValueError(
            f"an acceptance length of {acceptance_length:g} is impossible: a step gives at least one token"
        )
    return count(collectives) / acceptance_length


def ring_bytes(collectives: Sequence[Collective]) -> float:
    """Bytes that one GPU sends at least for all of them."""
    return sum(one.count * one.share * one.ring_bytes for one in collectives)
