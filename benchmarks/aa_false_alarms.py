"""How often `confirm` calls a configuration different from itself: it must be in at most 5 % of cases.

    python benchmarks/aa_false_alarms.py --write docs/measurements/aa-false-alarms.md

Launches are simulated, since a thousand real ones take weeks. Noise within a launch is resampled from real requests
(``aa_requests.csv``: one launch of SGLang on two H200, four loads; blocks of requests as long as the load is wide).
What differs between launches is a factor common to all loads and one of each load, drawn from the distributions named
in the table, or, with ``--storage URL --study NAME``, resampled from the confirming launches of a real study. The
decisions are those of the product, `report.verdict.Judge`, round after round until it wants no more launches.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from benchmark.statistics import ratio_interval  # noqa: E402
from report.repeated_looks import ERROR, FIRST_LOOK, MOST_LAUNCHES  # noqa: E402
from report.verdict import Judge, Repeats  # noqa: E402

Array = NDArray[np.float64]
# (which launch of the night, generator) -> logarithms of the factors of each load
BetweenLaunches = Callable[[int, np.random.Generator], Array]
RESAMPLED = 2000


def read_requests(path: Path) -> dict[str, tuple[int, Array, Array]]:
    """By load: requests in flight, seconds since the request before it ended, and tokens, in order of the ends."""
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    loads: dict[str, tuple[int, Array, Array]] = {}
    for level in dict.fromkeys(row["level"] for row in rows):
        of_level = [row for row in rows if row["level"] == level]
        ends = np.array([float(row["end_s"]) for row in of_level])
        tokens = np.array([float(row["output_tokens"]) for row in of_level])
        loads[level] = int(of_level[0]["concurrency"]), np.diff(ends, prepend=0.0), tokens
    return loads


def resampled(concurrency: int, gaps: Array, tokens: Array, generator: np.random.Generator) -> Array:
    """Throughputs that this load might as well have had: blocks of requests drawn anew."""
    count = len(gaps)
    block = min(max(int(np.sqrt(count)), concurrency), count // 2)
    starts = generator.integers(0, count, size=(RESAMPLED, -(-count // block)))
    places = ((starts[:, :, None] + np.arange(block)) % count).reshape(RESAMPLED, -1)
    drawn: Array = tokens[places].sum(axis=1) / gaps[places].sum(axis=1)
    return drawn


@dataclass(frozen=True)
class World:
    """A way in which launches of one configuration differ."""

    name: str
    between: BetweenLaunches


def worlds(loads: int) -> list[World]:
    """Small and large spreads, heavy tails, a slow state that some launches fall into, and a machine that warms up."""

    def normal(spread: float) -> BetweenLaunches:
        return lambda _, g: spread * (g.normal() + 0.5 * g.normal(size=loads))

    return [
        World("nothing but the noise within a launch", lambda _, g: np.zeros(loads)),
        World("launches differ by 0.5 % (normal)", normal(0.005)),
        World("launches differ by 2 % (normal)", normal(0.02)),
        World("launches differ by 5 % (normal)", normal(0.05)),
        World(
            "heavy tails: 2 % times t with 3 degrees of freedom", lambda _, g: np.full(loads, 0.02 * g.standard_t(3))
        ),
        World(
            "one launch in five is 6 % slower, else 1 %",
            lambda _, g: np.full(loads, 0.01 * g.normal() - (0.06 if g.random() < 0.2 else 0.0)),
        ),
        World(
            "1 %, and all get slower by 0.3 % a launch through the night",
            lambda place, g: np.full(loads, 0.01 * g.normal() - 0.003 * place),
        ),
    ]


def recorded_world(url: str, study: str) -> World:
    """Residuals of the confirming launches of a real study, each configuration and load about its own mean."""
    from storage import Store  # noqa: PLC0415 - only where asked for

    by_launch: dict[int, dict[str, float]] = {}
    configuration: dict[int, int] = {}
    with Store.open(url) as store:
        for record in store.measurements(study):
            if record.purpose == "confirm":
                level = record.measurement.level.name
                by_launch.setdefault(record.launch_id, {})[level] = np.log(record.measurement.output_throughput)
                configuration[record.launch_id] = record.configuration_id
    residuals: list[float] = []
    for one in sorted(set(configuration.values())):
        launches = [by_launch[launch] for launch, owner in configuration.items() if owner == one]
        if len(launches) >= FIRST_LOOK:
            scores = np.array([np.mean(list(levels.values())) for levels in launches])
            residuals += list((scores - scores.mean()) * np.sqrt(len(scores) / (len(scores) - 1)))
    if not residuals:
        raise SystemExit(
            f"study {study!r} has no configuration with {FIRST_LOOK} confirming launches: confirm it first"
        )
    pool = np.array(residuals)
    return World(
        f"as the {len(pool)} confirming launches of study {study} differ ({100 * pool.std():.2f} %)",
        lambda _, g: np.full(1, g.choice(pool)),
    )


@dataclass
class Night:
    """Simulated launches of one and the same configuration, in the order in which they happen."""

    pools: Mapping[str, Array]
    world: World
    generator: np.random.Generator
    place: int = 0

    def launch(self) -> dict[str, float]:
        """Throughput by load."""
        factors = np.exp(self.world.between(self.place, self.generator))
        self.place += 1
        factors = np.broadcast_to(factors, len(self.pools))
        drawn = {name: self.generator.choice(pool) for name, pool in self.pools.items()}
        return {name: float(value * factor) for (name, value), factor in zip(drawn.items(), factors, strict=True)}


@dataclass
class Outcome:
    """What one report said of equal configurations.

    ``false``: something was called faster or slower than the baseline, or the baseline slower than the fastest.
    ``anywhere``: the same, or another one was called slower than the fastest.
    """

    false: bool
    anywhere: bool
    naive: bool
    launches: int


def one_report(night: Night, rivals: int, most: int) -> Outcome:
    """The flow's own rounds with ``rivals`` equal configurations, the first of them called the baseline."""
    judge = Judge(rivals, {}, most)
    launched: list[list[dict[str, float]]] = [[] for _ in range(rivals)]

    def everyone() -> list[Repeats]:
        return [
            Repeats(f"trial {place}" if place else "baseline", "", tuple(launches), is_baseline=not place)
            for place, launches in enumerate(launched)
        ]

    while due := judge.due(everyone()):
        places = [0 if one.is_baseline else int(one.name.split()[1]) for one in due]
        night.generator.shuffle(places)
        for place in places:
            launched[place].append(night.launch())
    verdict = judge.judge(everyone())
    told = [one.interval.verdict in ("faster", "slower") for one in verdict.against_baseline.values()]
    first, second = (one.scores({}) for one in everyone()[:2])
    both = min(len(first), len(second))
    naive = any(
        ratio_interval(first[:looks], second[:looks]).verdict in ("faster", "slower")
        for looks in range(FIRST_LOOK, both + 1)
    )
    slower = [name for name, one in verdict.against_fastest.items() if one.interval.verdict == "slower"]
    false = any(told) or "baseline" in slower
    return Outcome(false, false or bool(slower), naive, sum(map(len, launched)))


@dataclass(frozen=True)
class Row:
    """One world, one number of configurations."""

    world: str
    rivals: int
    reports: int
    first_200: int
    false: int
    anywhere: int
    naive: int
    launches: float

    def cells(self) -> str:
        share = self.false / self.reports
        margin = 1.96 * np.sqrt(share * (1 - share) / self.reports)
        low, high = max(share - margin, 0.0), share + margin
        naive = f"{self.naive / self.reports:.1%}" if self.rivals == 2 else "-"
        return (
            f"| {self.world} | {self.rivals} | {self.first_200} of 200 | {share:.1%} ({low:.1%} to {high:.1%}) "
            f"| {self.anywhere / self.reports:.1%} | {naive} | {self.launches:.1f} |"
        )


def tally(pools: Mapping[str, Array], world: World, rivals: int, reports: int, most: int, seed: int) -> Row:
    """Many reports of one world."""
    outcomes = [
        one_report(Night(pools, world, np.random.default_rng([seed, number, rivals])), rivals, most)
        for number in range(reports)
    ]
    return Row(
        world.name,
        rivals,
        reports,
        sum(one.false for one in outcomes[:200]),
        sum(one.false for one in outcomes),
        sum(one.anywhere for one in outcomes),
        sum(one.naive for one in outcomes),
        float(np.mean([one.launches for one in outcomes])) / rivals,
    )


def page(rows: list[Row], most: int, command: str, seconds: float) -> str:
    """The measurement as a page."""
    worst = max(row.false / row.reports for row in rows)
    two, five = (max(r.false / r.reports for r in rows if r.rivals == n) for n in (2, max(r.rivals for r in rows)))
    return "\n".join(
        [
            "# False alarms of `confirm`: a configuration against itself",
            "",
            f"At most {worst:.1%} of reports called equal configurations different ({two:.1%} with two configurations, "
            f"{five:.1%} with {max(r.rivals for r in rows)}); {ERROR:.0%} is allowed. A plain 95 % interval, looked at "
            f"after every launch, did so in up to {max(r.naive / r.reports for r in rows if r.rivals == 2):.1%}.",
            "",
            f"- date: {datetime.date.today().isoformat()}",
            f"- command: `{command}`",
            f"- machine: {os.cpu_count()} cores, {platform.machine()}; {seconds:.0f} s",
            f"- versions: Python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}",
            f"- looks: after {FIRST_LOOK} to {most} launches of each, stopping at the first that decides",
            "",
            "| what differs between launches | configurations | false, of the first 200 | false, of all "
            f"{rows[0].reports} (95 % interval) | any pair | plain 95 % at each look | launches of each |",
            "|---|---|---|---|---|---|---|",
            *(row.cells() for row in rows),
            "",
            "A report is false if it calls anything faster or slower than the baseline, or the baseline slower than "
            "the fastest: what is guaranteed. *Any pair* adds reports in which another one of several equal "
            "configurations was called slower than the fastest of them, which costs nothing but its place among the "
            "tied.",
            "",
            "Launches are simulated. Noise within a launch is resampled from real requests "
            "(`benchmarks/aa_requests.csv`); how launches differ is assumed as named, unless a row says that it is "
            "taken from a study (`--storage`, `--study`). The method is in `report/repeated_looks.py`: the error is "
            "spent over the looks (Lan and DeMets 1983) and added up by Bonferroni's inequality, so the rates lie "
            "below what is allowed: that is the price of not assuming how looks depend on each other.",
            "",
        ]
    )


def main() -> None:
    """Count, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=1000, help="reports a row, at least 200")
    parser.add_argument("--launches", type=int, default=MOST_LAUNCHES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--storage", help="SQLAlchemy URL of a study with real confirming launches")
    parser.add_argument("--study", help="its name")
    parser.add_argument("--write", type=Path, help="page to write")
    given = parser.parse_args()
    began = time.monotonic()
    generator = np.random.default_rng(given.seed)
    requests = read_requests(Path(__file__).parent / "aa_requests.csv")
    pools = {name: resampled(*load, generator) for name, load in requests.items()}
    all_worlds = worlds(len(pools)) + ([recorded_world(given.storage, given.study)] if given.storage else [])
    rows = []
    for rivals in (2, 5):
        for world in all_worlds:
            row = tally(pools, world, rivals, max(given.reports, 200), given.launches, given.seed)
            print(row.cells(), flush=True)
            rows.append(row)
    command = shlex.join(["python", "benchmarks/aa_false_alarms.py", *sys.argv[1:]])
    text = page(rows, given.launches, command, time.monotonic() - began)
    if given.write:
        given.write.parent.mkdir(parents=True, exist_ok=True)
        given.write.write_text(text)
    else:
        print(text)
    if max(row.false / row.reports for row in rows) > ERROR:
        raise SystemExit("more false alarms than are allowed")


if __name__ == "__main__":
    main()
