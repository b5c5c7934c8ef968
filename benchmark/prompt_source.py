"""Which prompt each request gets: fresh ones at every level, the same ones for every engine."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cached_property

from benchmark.prompts import Prompt
from benchmark.results import Level

# Until the server has counted a prompt: English and code lie between three and five characters a token.
CHARACTERS_PER_TOKEN = 4.0

# What marks a prompt: a quality and a thing, so that prompts differ from their first token on.
_QUALITIES = [
    "Amber",
    "Brisk",
    "Calm",
    "Dusty",
    "Early",
    "Faint",
    "Gentle",
    "Hollow",
    "Iron",
    "Jolly",
    "Keen",
    "Little",
    "Mellow",
    "Narrow",
    "Old",
    "Pale",
    "Quiet",
    "Rapid",
    "Silver",
    "Tall",
    "Upper",
    "Vivid",
    "Western",
    "Young",
    "Zealous",
    "Blue",
    "Copper",
    "Distant",
    "Eastern",
    "Frozen",
    "Golden",
    "Humble",
    "Inner",
    "Jade",
    "Kind",
    "Lower",
]
_THINGS = [
    "harbour",
    "lantern",
    "meadow",
    "orchard",
    "bridge",
    "valley",
    "compass",
    "kettle",
    "library",
    "market",
    "needle",
    "ocean",
    "pencil",
    "quarry",
    "river",
    "saddle",
    "tunnel",
    "umbrella",
    "violin",
    "window",
    "yard",
    "anchor",
    "basket",
    "candle",
    "drawer",
    "engine",
    "feather",
    "garden",
    "hammer",
    "island",
    "jacket",
]
_CODE = re.compile(r"\s*(def |class |import |from \w|async def |@|#|\"\"\")")


class PromptSource:
    """Prompts for one engine launch.

    Every text is handed out once: while the file lasts as it stands, then behind a few words that no other prompt
    begins with, so that no prefix cache can answer for the engine. Which level gets which prompt follows from the
    order of ``levels`` and their numbers of requests alone (not from how long a warm-up took), so two engines
    measured with equal seeds answer the same prompts. Make a new source for each launch.
    """

    def __init__(self, prompts: Sequence[Prompt], *, seed: int = 0, levels: Sequence[Level] = ()) -> None:
        self.prompts = tuple(prompts)
        self.seed = seed
        self._order = random.Random(seed).sample(range(len(self.prompts)), len(self.prompts))
        self._rounds: dict[str, int] = {}
        self._places: dict[tuple[str, int], int] = {}
        self._allotted = 0
        for level in levels:
            self._place(level, 0)

    def begin(self, level: Level) -> LevelPrompts:
        """Prompts for one measurement of a level; measured again, the level gets others."""
        number = self._rounds.get(level.name, 0)
        self._rounds[level.name] = number + 1
        return LevelPrompts(self, level, number, self._place(level, number))

    def _place(self, level: Level, number: int) -> int:
        """Position of this level's first prompt in the order of the file's prompts."""
        key = (level.name, number)
        if key not in self._places:
            self._places[key] = self._allotted
            self._allotted += level.requests
        return self._places[key]

    def at(self, position: int) -> Prompt:
        """The file's prompts in the order of the seed, over and over."""
        return self.prompts[self._order[position % len(self._order)]]


class LevelPrompts:
    """The prompts of one measurement of one level."""

    def __init__(self, source: PromptSource, level: Level, number: int, first: int) -> None:
        self._source = source
        self._level = level
        self._number = number
        self._first = first
        self.characters_per_token = CHARACTERS_PER_TOKEN

    def measured(self, index: int) -> Prompt:
        """The prompt of the request number ``index``."""
        position = self._first + index
        prompt = self._fitted(position)
        fresh = index < self._level.requests and position < len(self._source.prompts)
        if fresh and self._level.prompt_tokens is None:
            return prompt
        return self._marked(prompt, "m", index)

    def warm_up(self, index: int) -> Prompt:
        """A prompt for warming up, none of which is measured."""
        return self._marked(self._fitted(self._first + self._level.requests + index), "w", index)

    def calibration(self, index: int) -> Prompt:
        """A prompt whose tokens, as the server counts them, correct ``characters_per_token``."""
        return self._marked(self._fitted(self._first + index), "k", index)

    def learn(self, prompt: Prompt, tokens: int) -> None:
        """The server has counted the tokens of a prompt."""
        if tokens > 0:
            self.characters_per_token = len(prompt.text) / tokens

    def _marked(self, prompt: Prompt, stream: str, index: int) -> Prompt:
        label = f"{self._level.name}.{self._number}.{stream}{index}"
        words = random.Random(f"{self._source.seed} {label}")
        name = f"{words.choice(_QUALITIES)} {words.choice(_THINGS)} {label}"
        return prompt.beginning_with(f"# {name}\n" if _CODE.match(prompt.text) else f"{name}.\n\n")

    def _fitted(self, position: int) -> Prompt:
        """The prompt there, lengthened with its neighbours or cut to the level's length where it has one."""
        prompt = self._source.at(position)
        if self._level.prompt_tokens is None:
            return prompt
        room = max(int(self._level.prompt_tokens * self.characters_per_token) - self._overhead, 1)
        own = prompt.messages[-1][1] if prompt.messages else prompt.text
        around = len(prompt.text) - len(own)
        own = own[-max(room - around, 1) :]
        missing = room - around - len(own) - 2
        if missing <= 0:
            return prompt.with_text(own)
        filler = self._filler(position, missing)
        return prompt.with_text(f"{filler}\n\n{own}")

    @cached_property
    def _overhead(self) -> int:
        """Characters that marking adds, roughly."""
        return len(f"# Amber harbour {self._level.name}.0.m100\n")

    def _filler(self, position: int, characters: int) -> str:
        """Prompts of the file joined, starting elsewhere for each position, ``characters`` long."""
        start = random.Random(f"{self._source.seed} filler {position}").randrange(len(self._source.prompts))
        parts: list[str] = []
        length = 0
        while length < characters:
            text = self._source.at(start + len(parts)).text
            parts.append(text)
            length += len(text) + 2
        return "\n\n".join(parts)[:characters]
