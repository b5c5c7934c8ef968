"""Whether answers may count: greedy answers against the baseline's, and samples of answers under load. Pure.

Two right engines differ: another kernel rounds otherwise, a near tie falls the other way, and from there on the texts
part. So a difference is judged where it begins: by how much likelier the reference found its own token than the one
given. And what a text looks like (loops, length, script) counts only against what the reference's texts look like,
since small models loop and stop early in perfect health.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmark.answers import Answers, GreedyAnswer
from benchmark.results import RequestSample
from benchmark.text_signs import language, loops, scripts

# Logits of magnitude 16 to 32 are an eighth apart in bf16, and rounding adds up over the layers; a token half as likely
# as the first (0.69) still is a near tie for engines that compute in four and eight bits.
TIE_NATS = 0.7
# Mean distance of log-probabilities along text that both gave: hundredths in bf16, a tenth between quantised kernels.
DRIFT_NATS = 0.3
# Share of the prompts that may part at no near tie; one prompt always may.
ASTRAY_SHARE = 0.15
# Where there are no log-probabilities: so many first characters must agree, for so large a share of the prompts.
FIRST_CHARACTERS = 12
AGREEING_SHARE = 0.4
# Signs of a text (a loop, an early end) that must be more frequent than the reference's by this share of the prompts.
SIGN_SHARE = 0.25
# A mean this near to 1 means that no draft is ever accepted (SGLang prints 1.00).
DEAD_LENGTH = 1.005
# Fewer tokens than this cannot tell a dead draft from bad luck.
DEAD_TOKENS = 64

FaultKind = Literal[
    "no answer", "not a number", "empty", "truncated", "repeated tokens", "wrong language", "broken text",
    "other text", "other probabilities", "same text for every prompt", "impossible acceptance", "dead acceptance",
]  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What is wrong with the answers: one sentence, and the texts that show it."""

    kind: FaultKind
    sentence: str
    evidence: str = ""


@dataclass(frozen=True)
class Agreement:
    """How far answers follow the reference.

    Attributes:
        same: prompts answered alike to the end.
        parted: prompts whose answers part somewhere.
        near_ties: those of them that part where the reference saw a near tie.
        common_share: mean share of the reference's answer that both begin with.
        drift_nats: mean distance of log-probabilities along the common beginnings, ``None`` without any.
    """

    same: int
    parted: int
    near_ties: int
    common_share: float
    drift_nats: float | None

    def sentence(self) -> str:
        """One line for a report."""
        drift = "" if self.drift_nats is None else f", log-probabilities {self.drift_nats:.3f} nats apart in the mean"
        return (
            f"{self.same} answers alike, {self.parted} parted ({self.near_ties} at a near tie), "
            f"{100 * self.common_share:.0f} % of the text in common{drift}"
        )


def agreement(reference: Answers, answers: Answers) -> Agreement:
    """How far the answers follow the reference's."""
    pairs = _answered_pairs(reference, answers)
    partings = [_parting(ours, theirs) for _, ours, theirs in pairs]
    shares = [
        1.0 if place is None else place / max(_length(ours, theirs), 1)
        for (_, ours, theirs), place in zip(pairs, partings, strict=True)
    ]
    ties = [
        place is not None and _lead(ours, theirs, place) <= TIE_NATS
        for (_, ours, theirs), place in zip(pairs, partings, strict=True)
    ]
    drift = [d for _, ours, theirs in pairs for d in _drift(ours, theirs)]
    parted = sum(place is not None for place in partings)
    return Agreement(
        same=len(pairs) - parted,
        parted=parted,
        near_ties=sum(ties),
        common_share=sum(shares) / len(shares) if shares else 0.0,
        drift_nats=sum(drift) / len(drift) if drift else None,
    )


def judge(reference: Answers | None, answers: Answers, speculative_steps: int | None = None) -> list[Fault]:
    """What is wrong with some answers; nothing for answers that may count.

    Without a reference (the baseline itself) only what is wrong in any case is looked for.
    ``speculative_steps`` is the number of drafted steps, ``None`` or 0 without speculation.
    """
    faults = [*_absolute(answers)]
    if reference is not None:
        if reference.prompts != answers.prompts:
            raise ValueError(
                "the answers are to other prompts than the reference's; collect both with the same prompts"
            )
        pairs = _answered_pairs(reference, answers)
        faults += [*_ends(pairs), *_texts(pairs), *_divergence(pairs)]
    lengths = [(a.acceptance_length, a.output_tokens) for a in answers.answers if a.error is None]
    return [*faults, *judge_acceptance(lengths, speculative_steps)]


def judge_under_load(
    reference: Sequence[str], answers: Sequence[str], samples: Sequence[RequestSample], speculative_steps: int | None
) -> list[Fault]:
    """What is wrong with a sample of answers given under load, beside a sample of the baseline's under the same load.

    The prompts need not be the same ones (nor the texts greedy): shares of signs are compared.
    """
    given = [GreedyAnswer(text, max(len(text), 1)) for text in answers]
    likewise = [GreedyAnswer(text, max(len(text), 1)) for text in reference]
    faults: list[Fault] = []
    if given and likewise:
        for kind, bad in (("empty", _is_empty), ("repeated tokens", lambda a: loops(a.text))):
            here = [answer for answer in given if bad(answer)]
            expected = sum(map(bad, likewise)) / len(likewise)
            if len(here) > expected * len(given) + max(2.0, SIGN_SHARE * len(given)):
                faults.append(
                    Fault(
                        "empty" if kind == "empty" else "repeated tokens",
                        f"{len(here)} of {len(given)} answers under load are {_ADJECTIVE[kind]}, "
                        f"{100 * expected:.0f} % of the baseline's",
                        _shown([("", answer.text) for answer in here]),
                    )
                )
        faults += _foreign(likewise, given)
    lengths = [(s.acceptance_length, s.output_tokens) for s in samples if s.error is None]
    return [*faults, *judge_acceptance(lengths, speculative_steps)]


_ADJECTIVE = {"empty": "empty", "repeated tokens": "loops"}


def judge_acceptance(lengths: Sequence[tuple[float | None, int]], speculative_steps: int | None) -> list[Fault]:
    """Whether (acceptance length, output tokens) of requests can be true.

    SGLang divides all tokens by the verification steps, the first token included that came from the prompt, so that
    one token is taken off before the length is held against ``steps + 1``.
    """
    if not speculative_steps:
        return []
    told = [(length, tokens) for length, tokens in lengths if length and tokens > 1]
    corrected = [(length * (tokens - 1) / tokens, length, tokens) for length, tokens in told]
    faults = []
    highest = max(corrected, default=(0.0, 0.0, 0))
    if highest[0] > speculative_steps + 1 + 1e-6 or any(not math.isfinite(length) for length, _ in told):
        faults.append(
            Fault(
                "impossible acceptance",
                f"an acceptance length of {highest[1]:.2f} over {highest[2]} tokens cannot come from "
                f"{speculative_steps} drafted steps (at most {speculative_steps + 1})",
            )
        )
    tokens = sum(tokens - 1 for *_, tokens in corrected)
    steps = sum((tokens - 1) / value for value, _, tokens in corrected if value)
    if tokens >= DEAD_TOKENS and steps and tokens / steps < DEAD_LENGTH:
        faults.append(
            Fault(
                "dead acceptance",
                f"an acceptance length of {tokens / steps:.3f} over {tokens} tokens: no draft is ever accepted, "
                "so the draft is broken",
            )
        )
    return faults


Pair = tuple[str, GreedyAnswer, GreedyAnswer]


def _answered_pairs(reference: Answers, answers: Answers) -> list[Pair]:
    """(prompt, reference's answer, answer) where both have answered."""
    triples = zip(reference.prompts, reference.answers, answers.answers, strict=True)
    return [(prompt, ours, theirs) for prompt, ours, theirs in triples if ours.error is None and theirs.error is None]


def _absolute(answers: Answers) -> list[Fault]:
    faults: list[Fault] = []
    everything = [*zip(answers.prompts, answers.answers, strict=True)]
    failed = [(prompt, answer) for prompt, answer in everything if answer.error is not None]
    if failed:
        sentence = f"{len(failed)} of {len(everything)} prompts got no answer: {failed[0][1].error}"
        faults.append(Fault("no answer", sentence, _shown([(p, a.error or "") for p, a in failed])))
    broken = [
        (prompt, answer) for prompt, answer in everything if any(not math.isfinite(value) for value in answer.logprobs)
    ]
    if broken:
        sentence = f"log-probabilities of {len(broken)} of {len(everything)} answers are not finite numbers"
        faults.append(Fault("not a number", sentence, _shown([(p, a.text) for p, a in broken])))
    answered = [answer for _, answer in everything if answer.error is None]
    if len(answered) > 2 and all(_is_empty(answer) for answer in answered):
        faults.append(Fault("empty", f"all {len(answered)} answers are empty"))
    elif len(answered) > 2 and len({answer.text.strip() for answer in answered}) == 1:
        sentence = f"all {len(answered)} prompts got the same answer"
        faults.append(Fault("same text for every prompt", sentence, answered[0].text[:300]))
    return faults


def _ends(pairs: Sequence[Pair]) -> list[Fault]:
    """Empty and truncated answers."""
    faults: list[Fault] = []
    empty = [
        (prompt, ours.text)
        for prompt, ours, theirs in pairs
        if _is_empty(theirs) and not _is_empty(ours) and not _parted_at_tie(ours, theirs)
    ]
    if empty:
        sentence = f"{len(empty)} of {len(pairs)} answers are empty where the baseline's are not"
        faults.append(Fault("empty", sentence, _shown(empty)))
    # Ended by length before its length: something other than the model ended it.
    cut = [
        (prompt, theirs.text)
        for prompt, ours, theirs in pairs
        if theirs.finish == ours.finish == "length" and theirs.output_tokens < ours.output_tokens
    ]
    short = [
        (prompt, theirs.text)
        for prompt, ours, theirs in pairs
        if theirs.finish != "length" and 4 * theirs.output_tokens <= ours.output_tokens
    ]
    long = [
        1 for _, ours, theirs in pairs if ours.finish != "length" and 4 * ours.output_tokens <= theirs.output_tokens
    ]
    if cut:
        sentence = f"{len(cut)} of {len(pairs)} answers are cut off before their length"
        faults.append(Fault("truncated", sentence, _shown(cut)))
    elif _far_more_frequent(len(short), len(long), len(pairs)):
        sentence = f"{len(short)} of {len(pairs)} answers end in the first quarter of the baseline's"
        faults.append(Fault("truncated", sentence, _shown(short)))
    return faults


def _texts(pairs: Sequence[Pair]) -> list[Fault]:
    """Loops, scripts and languages."""
    stuck = [(prompt, theirs.text) for prompt, ours, theirs in pairs if loops(theirs.text) and not loops(ours.text)]
    freed = [1 for _, ours, theirs in pairs if loops(ours.text) and not loops(theirs.text)]
    faults = []
    if _far_more_frequent(len(stuck), len(freed), len(pairs)):
        sentence = f"{len(stuck)} of {len(pairs)} answers repeat themselves where the baseline's do not"
        faults.append(Fault("repeated tokens", sentence, _shown(stuck)))
    faults += _foreign([ours for _, ours, _ in pairs], [theirs for *_, theirs in pairs])
    switched = [
        (prompt, theirs.text)
        for prompt, ours, theirs in pairs
        if (spoken := language(ours.text)) and (other := language(theirs.text)) and spoken != other
    ]
    if len(switched) >= 2 and len(switched) > SIGN_SHARE * sum(language(ours.text) is not None for _, ours, _ in pairs):
        sentence = f"{len(switched)} of {len(pairs)} answers are in another language than the baseline's"
        faults.append(Fault("wrong language", sentence, _shown(switched)))
    return faults


def _foreign(reference: Sequence[GreedyAnswer], answers: Sequence[GreedyAnswer]) -> list[Fault]:
    """Letters of scripts that the reference hardly uses, and characters that no text should have."""
    before, now = scripts(a.text for a in reference), scripts(a.text for a in answers)
    letters_before, letters = max(before.total(), 1), now.total()
    faults: list[Fault] = []
    if letters < 50:
        return faults
    for script, count in now.items():
        share, was = count / letters, before[script] / letters_before
        limit = 0.05 if script == "BROKEN" else 0.3
        if share > limit + 2 * was:
            shown = sorted((a.text for a in answers), key=lambda text: -scripts([text])[script])
            evidence = _shown([("", text) for text in shown])
            if script == "BROKEN":
                sentence = f"{100 * share:.0f} % of the characters are broken ones, {100 * was:.0f} % of the baseline's"
                faults.append(Fault("broken text", sentence, evidence))
            else:
                sentence = f"{100 * share:.0f} % of the letters are {script}, {100 * was:.0f} % of the baseline's"
                faults.append(Fault("wrong language", sentence, evidence))
    return faults


def _divergence(pairs: Sequence[Pair]) -> list[Fault]:
    """Texts that part where the reference saw no near tie, and log-probabilities that have moved."""
    faults: list[Fault] = []
    judged = [(p, a, b) for p, a, b in pairs if a.tokens and b.tokens and a.alternatives]
    astray = [
        (prompt, f"{ours.text[:120]!r} became {theirs.text[:120]!r} (token {place}, lead {lead:.1f} nats)")
        for prompt, ours, theirs in judged
        if (place := _parting(ours, theirs)) is not None and (lead := _lead(ours, theirs, place)) > TIE_NATS
    ]
    if len(astray) > max(1.0, ASTRAY_SHARE * len(judged)):
        sentence = f"{len(astray)} of {len(judged)} answers leave the baseline's where it saw no near tie"
        faults.append(Fault("other text", sentence, _shown(astray)))
    drift = [d for _, ours, theirs in judged for d in _drift(ours, theirs) if math.isfinite(d)]
    if len(drift) >= 32 and sum(drift) / len(drift) > DRIFT_NATS:
        mean = sum(drift) / len(drift)
        sentence = f"log-probabilities of the same text are {mean:.2f} nats off in the mean (at most {DRIFT_NATS})"
        faults.append(Fault("other probabilities", sentence))
    others = [pair for pair in pairs if pair not in judged and not _is_empty(pair[1])]
    other = [
        (prompt, f"{ours.text[:120]!r} became {theirs.text[:120]!r}")
        for prompt, ours, theirs in others
        if ours.text[:FIRST_CHARACTERS] != theirs.text[:FIRST_CHARACTERS]
    ]
    if len(others) >= 4 and len(others) - len(other) < AGREEING_SHARE * len(others):
        sentence = f"{len(other)} of {len(others)} answers differ from the baseline's in their first characters"
        faults.append(Fault("other text", sentence, _shown(other)))
    return faults


def _is_empty(answer: GreedyAnswer) -> bool:
    return not answer.text.strip()


def _length(ours: GreedyAnswer, theirs: GreedyAnswer) -> int:
    by_tokens = bool(ours.tokens and theirs.tokens)
    return len(ours.tokens) if by_tokens else len(ours.text)


def _parting(ours: GreedyAnswer, theirs: GreedyAnswer) -> int | None:
    """Position of the first difference (of tokens, else of characters), ``None`` for equal answers."""
    by_tokens = bool(ours.tokens and theirs.tokens)
    first: Sequence[object] = ours.tokens if by_tokens else ours.text
    second: Sequence[object] = theirs.tokens if by_tokens else theirs.text
    for place, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return place
    return None if len(first) == len(second) else min(len(first), len(second))


def _lead(ours: GreedyAnswer, theirs: GreedyAnswer, place: int) -> float:
    """By how many nats the reference preferred its own token to the one given there (at least so many, if unlisted)."""
    if place >= len(ours.alternatives) or place >= len(theirs.tokens) or not ours.alternatives[place]:
        # One text is the beginning of the other; the end-of-text token is not among the answer's tokens.
        return 0.0 if ours.alternatives else math.inf
    listed = dict(ours.alternatives[place])
    own = ours.logprobs[place] if place < len(ours.logprobs) else max(listed.values())
    return own - listed.get(theirs.tokens[place], min(*listed.values(), own - 2 * TIE_NATS))


def _parted_at_tie(ours: GreedyAnswer, theirs: GreedyAnswer) -> bool:
    place = _parting(ours, theirs)
    return place is not None and bool(theirs.tokens) and _lead(ours, theirs, place) <= TIE_NATS


def _drift(ours: GreedyAnswer, theirs: GreedyAnswer) -> list[float]:
    """Distances of the log-probabilities along what both begin with."""
    place = _parting(ours, theirs)
    common = min(len(ours.logprobs), len(theirs.logprobs), len(ours.tokens) if place is None else place)
    return [abs(ours.logprobs[i] - theirs.logprobs[i]) for i in range(common)]


def _far_more_frequent(more: int, less: int, among: int) -> bool:
    """More often gained than lost, by more than drift would make of so many prompts."""
    return more >= max(4, SIGN_SHARE * among) + 2 * less


def _shown(cases: Sequence[tuple[str, str]], most: int = 3) -> str:
    """A few cases as evidence: the end of each prompt and the beginning of its text."""
    lines = [f"{prompt[-80:]!r}: {text[:300]!r}" if prompt else repr(text[:300]) for prompt, text in cases[:most]]
    return "\n".join(lines)
