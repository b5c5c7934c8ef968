"""How fast the log reader is: lines and megabytes a second over a log of any size, and the memory it takes.

    python benchmarks/log_reader_speed.py LOG [--megabytes 1024] [--repeat whole|serving]

The log given is repeated until it has the size wanted: `whole` repeats all of it (a start every few hundred lines, the
hardest), `serving` what follows its readiness (what a long log consists of).
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from engine.logs import LogReader

_READY = b"The server is fired up and ready to roll!"


def pieces(log: bytes, size: int, repeat: str) -> tuple[bytes, bytes, int]:
    """(what is read once, what is repeated, how often)."""
    cut = log.find(b"\n", log.find(_READY)) + 1 if repeat == "serving" and _READY in log else 0
    again = log[cut:] or log
    return log[:cut], again, max((size - cut) // len(again), 1)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("log", type=Path)
    arguments.add_argument("--megabytes", type=int, default=1024)
    arguments.add_argument("--repeat", choices=("whole", "serving"), default="serving")
    given = arguments.parse_args()
    first, again, times = pieces(given.log.read_bytes(), given.megabytes << 20, given.repeat)
    reader = LogReader()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, busy = time.perf_counter(), time.process_time()
    reader.feed(first)
    for _ in range(times):
        reader.feed(again)
    reader.finish()
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    size = len(first) + times * len(again)
    lines = first.count(b"\n") + times * again.count(b"\n")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{size / 1e6:,.0f} MB, {lines:,} lines in {seconds:.1f} s, {busy:.1f} s of one core: "
        f"{lines / busy:,.0f} lines/s, {size / busy / 1e6:,.0f} MB/s of a core; memory grew by {grown:.1f} MiB"
    )


if __name__ == "__main__":
    main()
