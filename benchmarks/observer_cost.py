"""What counting PCIe bytes costs: a running engine measured in turn without and with the observer.

    python benchmarks/observer_cost.py http://127.0.0.1:30000 --gpus 0,1 --concurrency 8 --pairs 12

The order within a pair alternates, so that a drift of the machine falls on both sides. The last line is JSON: the
throughput without and with, their ratio with its 95 % interval over the pairs, and the sampler's share of one core.
Without a URL a server of known figures is measured, which shows the cost to the client alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "benchmark")]

from known_server_process import known_server  # noqa: E402
from scipy.stats import t  # noqa: E402

from benchmark.load import measure  # noqa: E402
from benchmark.plan import Plan  # noqa: E402
from benchmark.prompt_source import PromptSource  # noqa: E402
from benchmark.prompts import load  # noqa: E402
from benchmark.results import Level  # noqa: E402
from interconnect.traffic import PcieObserver  # noqa: E402


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Geometric mean of paired ratios and its 95 % interval (Student's t on the logarithms)."""
    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.fmean(logs)
    reach = (
        float(t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
        if len(logs) > 1
        else math.inf
    )
    return math.exp(middle), math.exp(middle - reach), math.exp(middle + reach)


def compare(url: str, gpus: list[int], level: Level, pairs: int) -> dict[str, object]:
    """Measure ``pairs`` times without and with the observer."""
    plan = Plan.model_validate({"levels": [level.concurrency], "warm_up_s": 2.0})
    source = PromptSource(load(None), levels=[level])
    throughput: dict[bool, list[float]] = {False: [], True: []}
    cores: list[float] = []
    note = ""
    with PcieObserver(gpus) as observer:
        observer.measure_idle()
        for pair in range(pairs):
            for watched in (pair % 2 == 0, pair % 2 == 1):
                result = measure(url, level, source, plan, observers=[observer] if watched else [])
                throughput[watched].append(result.output_throughput)
                if watched and observer.window is not None:
                    cores.append(observer.window.cpu_s / observer.window.seconds)
                note = result.notes[-1] if watched and result.notes else note
            print(f"pair {pair}: {throughput[False][-1]:.1f} without, {throughput[True][-1]:.1f} with", flush=True)
    ratio, low, high = interval([w / o for w, o in zip(throughput[True], throughput[False], strict=True)])
    return {
        "without": statistics.fmean(throughput[False]),
        "with": statistics.fmean(throughput[True]),
        "ratio": ratio,
        "ratio_95": [low, high],
        "sampler_cores": statistics.fmean(cores) if cores else None,
        "note": note,
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="a running engine; left out, a server of known figures")
    parser.add_argument("--gpus", default="", help="NVML's indices, as 0,1")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=12)
    given = parser.parse_args()
    level = Level(given.concurrency, None, given.output_tokens, given.requests)
    gpus = [int(index) for index in given.gpus.split(",") if index]
    with contextlib.ExitStack() as stack:
        url = given.url or stack.enter_context(known_server())[0]
        print(json.dumps(compare(url, gpus, level, given.pairs)))


if __name__ == "__main__":
    main()
