"""What the rehearsal answers: text that depends on the prompt (sampled: on its seed too), not on the configuration."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

_VOCABULARY = """
the a of to in is that for with on as by from at it this are be or an each one two can will when then so not but
all which what how where more less fast slow first last next same other new old long short small large high low
good value number list name file line word page time hour day week path step part side end point unit rate load
cost read write open close start stop run wait send take give keep make find show tell ask call move turn hold
set get add cut join split sort count check test build learn teach plan draw weigh measure compare balance
answer question reason result cause effect rule case kind form shape size place road river bridge house room
door window table water light sound wind stone tree leaf field garden market school letter book story music
engine wheel clock . , ; : and while because after before under over between against without about into
"""
WORDS = tuple(_VOCABULARY.split())
GARBAGE = "!"
CHARACTERS_A_TOKEN = 4


class Answer(NamedTuple):
    """An answer: its tokens (numbers into WORDS) and why it ends."""

    tokens: tuple[int, ...]
    finish: dict[str, Any]
    garbage: bool

    def text(self, count: int) -> str:
        """The text of the first ``count`` tokens."""
        return detokenise(self.tokens[:count], self.garbage)


def stream(seed: str) -> Any:
    """An endless, repeatable stream of numbers from 0 to 1 (xorshift: random and hashlib cost a start 50 ms)."""
    data = seed.encode()
    state = (zlib.crc32(data) << 32 | zlib.adler32(data) ^ len(data)) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF | 1
    while True:
        state ^= (state << 13) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 7
        state ^= (state << 17) & 0xFFFFFFFFFFFFFFFF
        yield state / 2.0**64


def detokenise(tokens: tuple[int, ...], garbage: bool = False) -> str:
    """Text of tokens: words with a space before each, punctuation without."""
    if garbage:
        return GARBAGE * len(tokens)
    words = (WORDS[token] for token in tokens)
    return "".join(word if word in ".,;:" else f" {word}" for word in words)


def count_tokens(prompt: str | list[int]) -> int:
    """Tokens of a prompt: given ones are counted, text has one every four characters."""
    if isinstance(prompt, list):
        return max(1, len(prompt))
    return max(1, (len(prompt) + CHARACTERS_A_TOKEN - 1) // CHARACTERS_A_TOKEN)


def answer(prompt: str | list[int], sampling: dict[str, Any], default_limit: int, garbage: bool = False) -> Answer:
    """The whole answer to a prompt. Greedy ones are repeatable; sampled ones depend on ``sampling_seed`` as well."""
    limit = sampling.get("max_new_tokens")
    limit = default_limit if limit is None else max(0, int(limit))
    seed = str(prompt)
    if sampling.get("temperature", 1.0):
        seed += f"|{sampling.get('temperature', 1.0)}|{sampling.get('sampling_seed', 0)}"
    numbers = stream(seed)
    natural = 40 + int(next(numbers) * 460)
    length = limit if sampling.get("ignore_eos") else min(limit, natural)
    tokens = tuple(0 if garbage else int(next(numbers) * len(WORDS)) for _ in range(length))
    stops = sampling.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    for stop in stops:
        text = detokenise(tokens, garbage)
        at = text.find(stop) if stop else -1
        if at >= 0:
            kept = next(n for n in range(len(tokens) + 1) if len(detokenise(tokens[:n], garbage)) > at)
            return Answer(tokens[: kept - 1], {"type": "stop", "matched": stop}, garbage)
    if length == limit:
        return Answer(tokens, {"type": "length", "length": length}, garbage)
    return Answer(tokens, {"type": "stop", "matched": 248046}, garbage)


def logprobs(answer_tokens: tuple[int, ...], drift: float) -> list[list[Any]]:
    """(log-probability, token, text or null) of each token; ``drift`` is a configuration's harmless numeric drift."""
    found = []
    for place, token in enumerate(answer_tokens):
        base = -0.02 - 0.9 * ((token * 37 + place * 101) % 97) / 97
        found.append([round(base * (1 + drift * (1 if token % 2 else -1)), 6), token, None])
    return found
