"""The samples of one measurement as one compressed column, lossless.

Columns of JSON rather than rows: numbers of one kind lie together, which compresses about four times better. Floats are
written with all their digits, so that what is read equals what was measured.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from benchmark.results import RequestSample
from storage.errors import StorageError

_FIELDS = tuple(field.name for field in fields(RequestSample))


def pack(samples: Sequence[RequestSample]) -> bytes:
    """Samples to bytes."""
    columns = {name: [getattr(sample, name) for sample in samples] for name in _FIELDS}
    return zlib.compress(json.dumps(columns, separators=(",", ":"), default=_number).encode())


def unpack(content: bytes) -> tuple[RequestSample, ...]:
    """Bytes to samples; fields that this version does not know are left out, those that it alone knows get defaults."""
    try:
        columns: dict[str, list[Any]] = json.loads(zlib.decompress(content))
        known = {name: values for name, values in columns.items() if name in _FIELDS}
        rows = zip(*known.values(), strict=True)
        return tuple(RequestSample(**{name: _tuple(v) for name, v in zip(known, row, strict=True)}) for row in rows)
    except (zlib.error, ValueError, TypeError, AttributeError) as broken:
        raise StorageError(
            f"The samples of a measurement cannot be read ({broken}): the row was damaged, measure it again."
        ) from broken


def _number(value: Any) -> Any:
    return value.item()  # a numpy number


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
