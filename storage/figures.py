"""The figures of a measurement as the columns that queries sort and average."""

from __future__ import annotations

from typing import Any

from benchmark.results import Measurement


def measurement_columns(measurement: Measurement) -> dict[str, Any]:
    """The figures of a measurement as columns."""
    level = measurement.level
    columns: dict[str, Any] = {
        "level": level.name,
        "concurrency": level.concurrency,
        "prompt_tokens": level.prompt_tokens,
        "output_tokens": level.output_tokens,
        "requests": level.requests,
    }
    for name in (
        "started_at",
        "duration_s",
        "completed",
        "failed",
        "output_throughput",
        "request_throughput",
        "acceptance_length",
        "acceptance_rate",
        "warm_up_s",
        "steady",
        "pcie_bytes_per_token",
        "nvlink_bytes_per_token",
    ):
        columns[name] = getattr(measurement, name)
    for quantity in ("ttft_ms", "itl_ms", "tpot_ms", "latency_ms"):
        distribution = getattr(measurement, quantity)
        for figure in ("mean", "p50", "p90", "p99"):
            columns[f"{quantity}_{figure}"] = None if distribution is None else getattr(distribution, figure)
    return {name: value.item() if hasattr(value, "item") else value for name, value in columns.items()}
