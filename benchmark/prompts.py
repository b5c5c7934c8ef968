"""Prompts: a JSONL file, one prompt a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

# Fewer texts than this say nothing about the acceptance that speculation would see in service.
FEWEST_PROMPTS = 8


class PromptsError(Exception):
    """A prompt file cannot be used; the text names file, line and remedy."""


@dataclass(frozen=True)
class Prompt:
    """A text to continue; ``messages`` where the file gave a conversation (``text`` then joins their contents)."""

    text: str
    messages: tuple[tuple[str, str], ...] = ()

    def with_text(self, text: str) -> Prompt:
        """The same prompt around another text: that of its last message, where it is a conversation."""
        if not self.messages:
            return Prompt(text)
        return Prompt.conversation((*self.messages[:-1], (self.messages[-1][0], text)))

    def beginning_with(self, words: str) -> Prompt:
        """The same prompt with some words before its very first one."""
        if not self.messages:
            return Prompt(words + self.text)
        (role, content), *others = self.messages
        return Prompt.conversation(((role, words + content), *others))

    @classmethod
    def conversation(cls, messages: tuple[tuple[str, str], ...]) -> Prompt:
        """A prompt of (role, content) pairs."""
        return cls("\n\n".join(content for _, content in messages), messages)

    def chat(self) -> list[dict[str, str]]:
        """The messages as the chat endpoint wants them."""
        pairs = self.messages or (("user", self.text),)
        return [{"role": role, "content": content} for role, content in pairs]


def load(path: str | Path | None = None, fewest: int = FEWEST_PROMPTS) -> tuple[Prompt, ...]:
    """The different prompts of a file, in its order; of the bundled file without a path. Raises ``PromptsError``."""
    name, raw = _read(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PromptsError(
            f"{name}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None
    prompts = tuple(dict.fromkeys(_prompts(name, text)))
    if not prompts:
        raise PromptsError(f"{name} holds no prompt; write one JSON string a line")
    if len(prompts) < fewest:
        raise PromptsError(f"{name} holds {len(prompts)} different prompts; give at least {fewest}, one a line")
    return prompts


def _read(path: str | Path | None) -> tuple[str, bytes]:
    if path is None:
        return "the bundled prompts", resources.files("benchmark").joinpath("prompts", "default.jsonl").read_bytes()
    try:
        return str(path), Path(path).read_bytes()
    except FileNotFoundError:
        raise PromptsError(f"{path}: there is no such prompt file; check the path, or leave it out") from None
    except OSError as error:
        raise PromptsError(f"{path}: cannot be read ({error.strerror}); give a readable JSONL file") from None


def _prompts(name: str, text: str) -> Iterator[Prompt]:
    # Not splitlines(): JSON strings may hold U+2028 and its like unescaped.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            value = json.loads(line)
        except ValueError as error:
            raise PromptsError(f"{where}: not JSON ({error}); write a JSON string or object on each line") from None
        yield _prompt(where, value)


def _prompt(where: str, value: Any) -> Prompt:
    if isinstance(value, dict) and "messages" in value:
        return _conversation(where, value["messages"])
    text = value.get("prompt") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise PromptsError(f'{where}: holds no prompt; write "text", {{"prompt": "text"}} or {{"messages": [...]}}')
    if not text.strip():
        raise PromptsError(f"{where}: the prompt is empty; write some text or take the line out")
    return Prompt(_encodable(where, text))


def _conversation(where: str, messages: Any) -> Prompt:
    wanted = 'write {"messages": [{"role": "user", "content": "text"}]}'
    if not isinstance(messages, list) or not messages:
        raise PromptsError(f"{where}: messages is no list of messages; {wanted}")
    pairs: list[tuple[str, str]] = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(role, str) or not isinstance(content, str):
            raise PromptsError(f"{where}: a message lacks a role or a text; {wanted}")
        pairs.append((role, _encodable(where, content)))
    if not any(content.strip() for _, content in pairs):
        raise PromptsError(f"{where}: the messages are empty; write some text or take the line out")
    return Prompt.conversation(tuple(pairs))


def _encodable(where: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PromptsError(f"{where}: holds half a surrogate pair (\\ud800 to \\udfff alone); write it whole") from None
    return text
