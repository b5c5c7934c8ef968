"""What a trial costs beside the engine's start and its benchmark.

    python benchmarks/trial_overhead.py [--trials 20] [--space nextn] [--write docs/measurements/trial-overhead.md]

Runs `quietlane tune SPACE --engine rehearsal` as a person does, Prefect's temporary server included, and reads from the
study how long each trial took from one launch to the next, less the engine's start (launch to ready) and the measured
levels. What is left is ours: proposing, recording, Prefect, the correctness gate, teardown.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from storage import Store


def overheads(url: str, study: str) -> tuple[list[float], list[float]]:
    """(seconds of ours, seconds of start and benchmark) of each measured trial but the last."""
    ours, engines = [], []
    with Store.open(url) as store:
        launches = store.launches(study)
        for launch, following in pairwise(launches):
            if launch.outcome != "measured" or launch.ready_at is None:
                continue
            levels = store.measurements(launch_id=launch.id)
            engine = launch.ready_at - launch.started_at
            load = sum(one.measurement.duration_s + one.measurement.warm_up_s for one in levels)
            ours.append(following.started_at - launch.started_at - engine - load)
            engines.append(engine + load)
    return ours, engines


def main() -> None:
    """Run, read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--space", default="nextn")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quietlane-overhead-") as folder:
        url = f"sqlite:///{folder}/study.db"
        command = [str(Path(sys.executable).with_name("quietlane")), "tune", arguments.space, "--engine", "rehearsal"]
        command += ["--trials", str(arguments.trials), "--storage", url, "--output", f"{folder}/runs"]
        began = time.monotonic()
        environment = {**os.environ, "PREFECT_HOME": f"{folder}/prefect"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        wall = time.monotonic() - began
        ours, engines = overheads(url, f"{arguments.space}-rehearsal")
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    text = (
        f"# Overhead of a trial\n\n`python benchmarks/trial_overhead.py --trials {arguments.trials} --space "
        f"{arguments.space}`, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {platform.machine()}, "
        f"{os.cpu_count()} cores (load average {load}), Python {platform.python_version()}.\n\n"
        "The engine is the rehearsal engine: what is measured here is quietlane, not an engine.\n\n"
        "| | |\n| --- | --- |\n"
        f"| trials of the search | {arguments.trials} |\n"
        f"| the whole command, Prefect's temporary server included | {wall:.1f} s |\n"
        f"| trials measured | {len(ours)} |\n"
        f"| start and benchmark of a trial, median | {statistics.median(engines):.2f} s |\n"
        f"| ours, median | {statistics.median(ours):.2f} s |\n"
        f"| ours, worst | {max(ours):.2f} s |\n"
    )
    print(text)
    if arguments.write:
        arguments.write.write_text(text)


if __name__ == "__main__":
    main()
