"""Secrets are taken out of everything before it is written: by the name they stand under, or by their own shape.

A name gives a secret away by its words (``--admin-api-key``, ``HF_TOKEN``, ``PGPASSWORD``), never by letters inside a
word: ``--tokenizer-path``, ``--max-total-tokens`` and ``monkey`` are left alone. Values seen once under such a name can
be learnt (`Redactor.learn`), and are then taken out wherever else they turn up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

HIDDEN = "***"

# Told by any of these anywhere in a name, since they are long enough to mean nothing else.
_ALWAYS = re.compile(r"password|passwd|passphrase|secret|credential|api_?key|private_?key|access_?key", re.IGNORECASE)
# What may stand before "key" or "token" in a lower-case name that holds a secret.
_KEY_OWNERS = frozenset(
    {"api", "admin", "access", "auth", "private", "encryption", "signing", "master", "license", "service"}
)
_INNOCENT_TOKENS = frozenset(
    {"per", "to", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "start", "end", "stop", "begin", "draft", "image",
     "audio", "video", "special", "next", "first", "last", "new", "cached", "input", "output", "prompt", "full", "each",
     "think", "multi", "swa", "total", "one", "by", "ms", "s"}
)  # fmt: skip
# A name that ends so holds a place or a size, not the secret itself.
_PLACES = frozenset(
    {"file", "files", "path", "dir", "folder", "name", "length", "len", "size", "count", "keyfile", "certfile"}
)
_SWITCHES = frozenset({"", "0", "1", "true", "false", "yes", "no", "on", "off", "none", "null", "auto", HIDDEN})
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?%?")
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_URL_PASSWORD = re.compile(r"(?P<head>\b[a-zA-Z][\w+.-]*://[^\s:/@'\"]*:)(?P<secret>[^\s/'\"]+)(?=@)")
_HEADER = re.compile(
    r"(?P<head>\b(?:authorization[\"']?\s*[:=]\s*[\"']?)?(?:bearer|basic)\s+)(?P<secret>[\w.~+/=-]{8,})", re.IGNORECASE
)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[opsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|nvapi-[\w-]{16,}|AKIA[0-9A-Z]{16}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_VALUE = r"(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[^\s,;&)}\]\"']+)"
# name=value, name: value, "name": "value", --name value; and two neighbours of a printed list: '--name', 'value'
_NAMED = re.compile(
    r"(?P<name>(?:--?)?\b[A-Za-z_][\w.-]*)(?P<between>[\"']?\s{0,3}[=:]\s{0,3}|[\"'],\s{0,3}|[ \t]{1,3})(?P<value>" + _VALUE + ")"
)  # fmt: skip
_YAML_NEXT = re.compile(r"[\"']")


def is_secret(name: str, value: object = None) -> bool:
    """Whether what stands under this name (flag, variable, key) is a secret; the value excuses switches and counts."""
    if isinstance(value, bool) or (value is not None and str(value).strip("\"'").lower() in _SWITCHES):
        return False
    bare = name.lstrip("-")
    words = [word.lower() for word in _WORDS.findall(bare)]
    if not words or words[-1] in _PLACES:
        return False
    if _ALWAYS.search(bare.replace("-", "_")):
        return True
    numeric = isinstance(value, int | float) or (value is not None and bool(_NUMBER.fullmatch(str(value).strip("\"'"))))
    shouted = bare == bare.upper() and "_" in bare
    while words[-1].isdigit() and len(words) > 1:
        words.pop()
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if "token" in words and (last == "token" or shouted):
        at = len(words) - 1 - words[::-1].index("token")
        before = words[at - 1] if at else ""
        return before not in _INNOCENT_TOKENS and not (numeric and not shouted) and (last == "token" or not numeric)
    if "key" in words and shouted:
        return not (numeric and last != "key")
    return last == "key" and before in _KEY_OWNERS


def _named(match: re.Match[str]) -> str:
    name, between, value = match["name"], match["between"], match["value"]
    flag = name.startswith("-")
    if between.isspace() and not flag:
        return match[0]
    if between.lstrip("\"'").startswith(",") and not flag:
        return match[0]
    if value.startswith("-") and flag and between.isspace():
        return match[0]
    if not is_secret(name, value):
        return match[0]
    if name.lower() == "token" and not (len(value) >= 8 and re.search(r"\d", value)):
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{between}{quote}{HIDDEN}{quote}"


def redact(text: str, known: Iterable[str] = ()) -> str:
    """The text without its secrets: those in `known`, those under a telling name, those of a telling shape."""
    for secret in known:
        text = text.replace(secret, HIDDEN)
    text = _URL_PASSWORD.sub(lambda match: match["head"] + HIDDEN, text)
    text = _HEADER.sub(lambda match: match["head"] + HIDDEN, text)
    text = _SHAPES.sub(HIDDEN, text)
    # A value may itself be the name of the next pair ("a --api-key x"), so names are searched from every word on.
    parts: list[str] = []
    at = 0
    while match := _NAMED.search(text, at):
        replaced = _named(match)
        parts.append(text[at : match.start()])
        if replaced == match[0]:
            end = match.end("name")
            parts.append(text[match.start() : end])
            at = end
        else:
            parts.append(replaced)
            at = match.end()
    return "".join([*parts, text[at:]])


def redact_command(command: Sequence[str], known: Iterable[str] = ()) -> list[str]:
    """A command line without its secrets, word by word."""
    known = tuple(known)
    words: list[str] = []
    for word in command:
        flag = words[-1] if words else ""
        after_flag = flag.startswith("-") and "=" not in flag and not word.startswith("--")
        words.append(HIDDEN if after_flag and is_secret(flag, word) else redact(word, known))
    return words


def redact_values(value: Any, known: Iterable[str] = ()) -> Any:
    """Plain JSON values (dictionaries, lists, texts, numbers) without their secrets, from anything that can be so told."""
    known = tuple(known)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redact(value, known)
    if isinstance(value, Mapping):
        return {
            str(name): HIDDEN if _scalar(item) and is_secret(str(name), item) else redact_values(item, known)
            for name, item in value.items()
        }
    if is_dataclass(value) and not isinstance(value, type):
        return redact_values(asdict(value), known)
    if isinstance(value, Enum):
        return redact_values(value.value, known)
    if isinstance(value, PurePath):
        return redact(str(value), known)
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        if value and all(isinstance(item, str) for item in value):
            return redact_command(value, known)
        return [redact_values(item, known) for item in value]
    if hasattr(value, "item"):  # a numpy number
        return redact_values(value.item(), known)
    return redact(str(value), known)


def _scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


class Redactor:
    """`redact` with a memory: values once seen under a secret's name are taken out wherever they turn up later."""

    shortest = 6  # shorter values are too likely to be part of innocent text

    def __init__(self) -> None:
        self._known: set[str] = set()

    def learn(self, *named: Mapping[str, Any]) -> None:
        """Remember the values that stand under secret names (flags, environment variables)."""
        for values in named:
            for name, value in values.items():
                if _scalar(value) and is_secret(name, value) and len(str(value)) >= self.shortest:
                    self._known.add(str(value))

    def learn_command(self, command: Sequence[str]) -> None:
        """Remember the secrets given on a command line."""
        for flag, value in zip(command, [*command[1:], ""], strict=True):
            name, equals, given = flag.partition("=")
            if flag.startswith("-"):
                self.learn({name: given if equals else value})

    def learn_secret(self, secret: str | None) -> None:
        """Remember one value."""
        if secret and len(secret) >= self.shortest:
            self._known.add(secret)

    @property
    def known(self) -> tuple[str, ...]:
        """What was learnt, longest first, so that no secret hides the rest of a longer one."""
        return tuple(sorted(self._known, key=len, reverse=True))

    def text(self, text: str) -> str:
        """The text without secrets, and without what no database takes (NUL, lone surrogates)."""
        return redact(text, self.known).replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line without secrets."""
        return redact_command(command, self.known)

    def values(self, value: Any) -> Any:
        """Plain JSON values without secrets."""
        return redact_values(value, self.known)
