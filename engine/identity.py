"""When two configurations are one: the identity of what SGLang resolved, in the environment it was given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from engine.configuration import Configuration

TABLE = Path(__file__).with_name("resolved_arguments.yaml")


@cache
def _table() -> dict[str, Any]:
    return yaml.safe_load(TABLE.read_text())


def resolved_identity(resolved: Mapping[str, Any], configuration: Configuration, version: str) -> str:
    """Sixteen hexadecimal digits that configurations share which this version of SGLang resolves alike.

    Left out is what says nothing about the engine's work (ports, tokens, log settings, a drawn seed). Put in is the
    whole environment of the configuration, since no resolved argument shows what NCCL or a kernel makes of it.
    """
    table = _table()
    kept = {name: value for name, value in resolved.items() if name not in table["volatile"]}
    for name, flag in table["random_unless_given"].items():
        if flag not in configuration.flags:
            kept.pop(name, None)
    for name, other in table["falls_back_to"].items():
        if name in kept and kept[name] is None:
            kept[name] = kept.get(other)
    content = {"resolved": kept, "environment": dict(configuration.environment), "version": version}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]
