"""However a log is wrapped or torn, it says the same."""

from __future__ import annotations

import io
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.logs import LogReader
from engine.watch import summary

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"
NAMES = (
    "h200x2-0.5.17-nextn-tp2-died-in-draft-graphs",
    "h200x2-0.5.17-nextn-tp2-ready",
    "cpu-0.5.23-tp2-assertion",
    "cpu-0.5.23-no-model",
    "cpu-0.5.23-unknown-flag",
    "cpu-0.5.14-tp1-ready",
)
TEXTS = {name: lzma.decompress((LOGS / f"{name}.log.xz").read_bytes()) for name in NAMES}


def each_line(before: str) -> Callable[[bytes], bytes]:
    """Puts a prefix in front of each line; carriage returns stay as they are."""
    return lambda text: re.sub(rb"(?m)^", before.encode(), text)


def as_json(text: bytes) -> bytes:
    lines = text.decode().split("\n")
    return "\n".join(
        json.dumps({"level": "info", "ts": 1795982400.5 + place, "message": line}) for place, line in enumerate(lines)
    ).encode()


WRAPPERS: dict[str, Callable[[bytes], bytes]] = {
    "docker compose": each_line("sglang-1  | "),
    "journald": each_line("Nov 30 21:50:58 box-3 sglang[4242]: "),
    "kubectl with timestamps": each_line("2026-11-30T21:50:58.123456789Z "),
    "kubectl with the pod": each_line("[pod/sglang-0/engine] "),
    "a container runtime's file": each_line("2026-11-30T21:50:58.123456789Z stderr F "),
    "Ray": each_line("(pid=4242) "),
    "a Ray actor in colour": each_line("\x1b[36m(EngineActor pid=4242, ip=10.0.0.7)\x1b[0m "),
    "torchrun": each_line("[default0]:"),
    "srun": each_line("0: "),
    "another logger": each_line("2026-11-30 21:50:58,123 - runner - INFO - "),
    "a logger of one's own fashion": each_line("2026-11-30 21:50:58 | INFO | "),
    "colours": lambda text: re.sub(rb"(?m)^(\[[^\]\n]*\])", lambda m: b"\x1b[32m" + m[1] + b"\x1b[0m", text),
    "JSON lines": as_json,
    "docker's JSON": lambda text: "\n".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-30T21:50:58.1Z"})
        for line in text.decode().split("\n")
    ).encode(),
    "milliseconds": lambda text: re.sub(rb"(?m)^(\[[\d-]+ [\d:]+)", rb"\1.000", text),
    "Windows newlines": lambda text: text.replace(b"\n", b"\r\n"),
    "NUL bytes": lambda text: text.replace(b"begin", b"be\0gin"),
    "bytes that are no UTF-8": lambda text: text.replace(b"\n", b"\n\xff\xfe\x80 what\n", 1),
}


def told(text: bytes) -> dict[str, Any]:
    found = summary(io.BytesIO(text))
    if found["failure"]:
        del found["failure"]["evidence"]  # its lines may carry what was put around them
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapped_log_says_what_the_bare_one_says(wrapper: str, name: str) -> None:
    assert told(WRAPPERS[wrapper](TEXTS[name])) == told(TEXTS[name])


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.integers(0, 60_000), max_size=30))
def test_it_does_not_matter_where_a_log_is_torn(name: str, cuts: list[int]) -> None:
    text = TEXTS[name]
    reader, begin = LogReader(), 0
    for cut in [*sorted(cut % len(text) for cut in cuts), len(text)]:
        reader.feed(text[begin:cut])
        begin = cut
    reader.finish()
    whole = LogReader()
    whole.feed(text)
    whole.finish()
    assert [(p.rank, p.name, p.elapsed_s, p.done, p.memory_left_gb) for p in reader.phases] == [
        (p.rank, p.name, p.elapsed_s, p.done, p.memory_left_gb) for p in whole.phases
    ]
    assert (reader.ready, reader.version, reader.failure()) == (whole.ready, whole.version, whole.failure())


def test_a_log_that_comes_byte_by_byte_says_the_same() -> None:
    text = TEXTS["cpu-0.5.23-tp2-assertion"]
    reader = LogReader()
    for place in range(len(text)):
        reader.feed(text[place : place + 1])
    reader.finish()
    assert reader.failure() is not None
    assert reader.failure().rank == "TP1"  # type: ignore[union-attr]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=200), st.sampled_from([*TEXTS.values()]).map(lambda t: t[:3000])), max_size=6)
)
def test_garbage_never_raises(pieces: list[bytes]) -> None:
    reader = LogReader()
    for piece in pieces:
        reader.feed(piece)
        reader.progress()
        reader.failure(1)
    reader.finish()
    assert reader.failure(1) is not None or reader.ready


def test_a_line_without_end_takes_no_memory() -> None:
    reader = LogReader()
    for _ in range(64):
        reader.feed(b"x" * (1 << 18))
    assert len(reader._carry) <= 1 << 20


def test_several_starts_in_one_log_the_last_one_counts() -> None:
    both = TEXTS["cpu-0.5.14-tp1-ready"] + TEXTS["h200x2-0.5.17-nextn-tp2-died-in-draft-graphs"]
    assert told(both) == told(TEXTS["h200x2-0.5.17-nextn-tp2-died-in-draft-graphs"]) | {"ranks": told(both)["ranks"]}
    assert set(told(both)["ranks"]) == {"TP0", "TP1"}
    assert told(TEXTS["cpu-0.5.23-tp2-assertion"] + TEXTS["cpu-0.5.14-tp1-ready"])["ready"] is True
