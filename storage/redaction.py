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
from typing import Any

HIDDEN = "***"

# Any of these anywhere in a name tells a secret: they are long enough to mean nothing else.
_TELLING = re.compile(
    r"password|passwd|passphrase|secret|credential|api_?key|private_?key|access_?key"
    r"|(?:auth|access|bearer|refresh|session|hf|github|api)_?token(?!s)",
    re.IGNORECASE,
)
# What may stand before "key" in a lower-case name that holds a secret.
_KEY_OWNERS = frozenset({"admin", "auth", "encryption", "signing", "master", "license", "service", "account"})
# What may stand before "token" in a name that holds a count, a time or a mark of the vocabulary.
_COUNTED = frozenset(
    {
        "per",
        "to",
        "eos",
        "bos",
        "pad",
        "unk",
        "sep",
        "cls",
        "mask",
        "start",
        "end",
        "stop",
        "begin",
        "draft",
        "image",
        "audio",
        "video",
        "special",
        "next",
        "first",
        "last",
        "new",
        "cached",
        "input",
        "output",
        "prompt",
        "full",
        "each",
        "think",
        "multi",
        "swa",
        "total",
        "one",
        "by",
        "max",
        "min",
        "num",
    }
)
# A name that ends so holds a place or a size, not the secret itself.
_PLACES = frozenset({"file", "path", "dir", "folder", "name", "length", "len", "size", "count", "keyfile", "certfile"})
_SWITCHES = frozenset({"", "0", "1", "true", "false", "yes", "no", "on", "off", "none", "null", "auto", HIDDEN})
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?%?")
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_URL_PASSWORD = re.compile(r"(?P<head>\b[a-zA-Z][\w+.-]*://[^\s:/@'\"]*:)[^\s/'\"]+(?=@)")
_HEADER = re.compile(
    r"(?P<head>\bauthorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token)\s+|\bbearer\s+(?=\S*\d)(?=\S{8}))[^\s\"',;]+",
    re.IGNORECASE,
)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[opsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|nvapi-[\w-]{16,}|AKIA[0-9A-Z]{16}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# name=value, name: value, "name": "value", --name value; and two neighbours of a printed list: '--name', 'value'
_NAMED = re.compile(
    r"(?P<name>(?:--?)?\b[A-Za-z_][\w.-]*)"
    r"(?P<between>(?:\\?[\"'])?\s{0,3}[=:]\s{0,3}|[\"'],\s{0,3}|[ \t]{1,3})"
    r"(?P<value>\\\"[^\"\\\n]*\\\"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[^\s,;&)}\]\"']+)"
)
_WORTH_A_LOOK = re.compile(r"token|key|pass|pwd|secret|credential", re.IGNORECASE)


def is_secret(name: str, value: object = None) -> bool:
    """Whether what stands under this name (flag, variable, key) is a secret; the value excuses switches and counts."""
    said = "" if value is None else str(value).strip("\\\"'")
    if isinstance(value, bool) or (value is not None and said.lower() in _SWITCHES):
        return False
    bare = name.lstrip("-")
    words = [word.lower() for word in _WORDS.findall(bare)]
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    if not words or words[-1].removesuffix("s") in _PLACES or words[-1] in _PLACES:
        return False
    if _TELLING.search(bare.replace("-", "_")):
        return True
    return _told_by_words(words, variable=bare == bare.upper(), number=_NUMBER.fullmatch(said) is not None)


def _told_by_words(words: list[str], variable: bool, number: bool) -> bool:
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if variable and "token" in words:
        at = words.index("token")
        return not (at and words[at - 1] in _COUNTED) and (last == "token" or not number)
    if variable and "key" in words:
        return last == "key" or not number
    if last == "token":
        return not number and before not in _COUNTED
    return (last == "key" and before in _KEY_OWNERS) or (last in {"pwd", "pass"} and bool(before) and variable)


def _named(match: re.Match[str]) -> str:
    name, between, value = match["name"], match["between"], match["value"]
    joined = "=" in between or ":" in between
    if not joined and (not name.startswith("-") or value.startswith("-")):
        return match[0]
    if not is_secret(name, value):
        return match[0]
    if name.lower() == "token" and name != "TOKEN" and not (len(value) >= 8 and re.search(r"\d", value)):
        return match[0]  # a parser's "unexpected token: x"
    quote = next((mark for mark in ('\\"', '"', "'") if value.startswith(mark)), "")
    return f"{name}{between}{quote}{HIDDEN}{quote}"


def redact(text: str, known: Iterable[str] = ()) -> str:
    """The text without its secrets: those in `known`, those under a telling name, those of a telling shape."""
    for secret in known:
        text = text.replace(secret, HIDDEN)
    text = _URL_PASSWORD.sub(lambda match: match["head"] + HIDDEN, text)
    text = _HEADER.sub(lambda match: match["head"] + HIDDEN, text)
    text = _SHAPES.sub(HIDDEN, text)
    if not _WORTH_A_LOOK.search(text):
        return text
    parts: list[str] = []
    at = 0
    while match := _NAMED.search(text, at):
        replaced = _named(match)
        # the value of one pair may be the name of the next ("serve --api-key x"), so only the name is passed
        end = match.end("name") if replaced == match[0] else match.end()
        parts += [text[at : match.start()], replaced if replaced != match[0] else match["name"]]
        at = end
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
    """Plain JSON values (dictionaries, lists, texts, numbers) without their secrets, of anything that has them."""
    known, value = tuple(known), _plain(value)
    if isinstance(value, str):
        return redact(value, known)
    if isinstance(value, dict):
        return {
            str(name): HIDDEN if _scalar(item) and is_secret(str(name), item) else redact_values(item, known)
            for name, item in value.items()
        }
    if isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            return redact_command(value, known)
        return [redact_values(item, known) for item in value]
    return value


def _plain(value: Any) -> Any:
    """One layer of JSON's own types: a dictionary, a list, a text, a number, or nothing."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    elif isinstance(value, Enum):
        value = value.value
    elif hasattr(value, "item") and hasattr(value, "dtype"):  # a numpy number
        value = value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return list(value)
    return str(value)


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
        for flag, value in zip(command, [*command[1:], ""], strict=False):
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
