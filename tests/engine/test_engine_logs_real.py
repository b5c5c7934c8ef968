"""Every log of the fixtures is read as a person reads it."""

from __future__ import annotations

import io
import lzma
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.watch import summary

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((LOGS / "expected.yaml").read_text(encoding="utf-8"))


def log(name: str) -> bytes:
    return lzma.decompress((LOGS / f"{name}.log.xz").read_bytes())


def test_every_log_has_an_expected_answer() -> None:
    assert {path.name.removesuffix(".log.xz") for path in LOGS.glob("*.xz")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_phases_of_every_rank_are_those_of_the_log(name: str) -> None:
    found = summary(io.BytesIO(log(name)))["ranks"]
    fields = ("phase", "elapsed_s", "memory_used_gb", "memory_left_gb", "done")
    assert {rank: [[phase[field] for field in fields] for phase in phases] for rank, phases in found.items()} == (
        EXPECTED[name]["ranks"]
    )


@pytest.mark.parametrize("name", EXPECTED)
def test_version_and_readiness_are_those_of_the_log(name: str) -> None:
    found = summary(io.BytesIO(log(name)))
    assert (found["version"], found["ready"]) == (EXPECTED[name]["version"], EXPECTED[name]["ready"])


@pytest.mark.parametrize("name", EXPECTED)
def test_the_failure_is_the_first_cause(name: str) -> None:
    found, expected = summary(io.BytesIO(log(name)))["failure"], EXPECTED[name]["failure"]
    if expected is None:
        assert found is None
        return
    assert {key: found[key] for key in ("rank", "phase", "blame")} == {
        key: expected[key] for key in ("rank", "phase", "blame")
    }
    assert expected["says"] in found["cause"]
    assert expected["says"] in found["evidence"]
    assert found["remedy"]
