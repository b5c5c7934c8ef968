"""Compare search strategies on modelled and recorded surfaces: `python -m benchmarks.search.run --seeds 30`.

Rows go to the CSV as searches end, and a run that is started again skips what is there; the page is written from the
CSV at the end (and with --page-only).
"""

from __future__ import annotations

import argparse
import datetime
import platform
import shlex
import sys
from pathlib import Path

import numpy
import optuna
import scipy

from benchmarks.search.analysis.outcomes import append, judge, read
from benchmarks.search.analysis.page import page
from benchmarks.search.strategies.competitors import OURS, competitors, why_no_gp
from benchmarks.search.strategies.trace import CHECKPOINTS
from benchmarks.search.surfaces import FAMILIES, make
from benchmarks.search.surfaces.recorded import load as load_recorded

FIRST_SEED = 1000  # seeds below were used while the sampler was made


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    table = options.out.with_suffix(".csv")
    checkpoints = [launches for launches in CHECKPOINTS if launches <= options.launches]
    if not options.page_only:
        _search(options, table, checkpoints)
    outcomes = [o for o in read(table) if o.launches in checkpoints]
    if not outcomes:
        print(f"{table} holds no outcomes yet: run without --page-only first", file=sys.stderr)
        return 1
    options.out.write_text(page(outcomes, OURS, _facts(arguments), options.note))
    print(f"wrote {options.out} and {table}")
    return 0


def _search(options: argparse.Namespace, table: Path, checkpoints: list[int]) -> None:
    wanted = [s for s in competitors() if not options.strategies or s.name in options.strategies]
    done = {(o.family, o.seed, o.strategy) for o in read(table) if o.launches == checkpoints[-1]}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for family in [*options.families, *options.recorded]:
            surface = load_recorded(Path(family), seed) if family in options.recorded else make(family, seed)
            missing = [s for s in wanted if (surface.name, seed, s.name) not in done]
            if not missing:
                continue
            optimum = surface.optimum[1]
            for strategy in missing:
                trace = strategy.search(surface, seed, checkpoints[-1])
                rows = judge(trace, strategy.name, checkpoints, optimum)
                append(table, rows)
                reached = " ".join(f"@{row.launches} {row.reached:.1f}" for row in rows)
                print(
                    f"{surface.name} seed {seed} {strategy.name}: {reached}, crashed {rows[-1].crashed:.0f} %",
                    flush=True,
                )


def _facts(arguments: list[str] | None) -> dict[str, str]:
    given = sys.argv[1:] if arguments is None else arguments
    facts = {
        "command": f"`python -m benchmarks.search.run {shlex.join(given)}`",
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}, one process",
        "versions": f"Python {platform.python_version()}, optuna {optuna.__version__}, "
        f"numpy {numpy.__version__}, scipy {scipy.__version__}",
        "seeds": f"from {FIRST_SEED} on; smaller ones were used while the sampler was made",
    }
    reason = why_no_gp()
    return {**facts, "not in this run": reason} if reason else facts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.run", description=__doc__)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--recorded", nargs="*", default=[], metavar="CSV", help="recorded grids to replay too")
    parser.add_argument("--strategies", nargs="*", default=[], metavar="NAME", help="only these (default: all)")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--launches", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path("docs/measurements/search-tally.md"))
    parser.add_argument("--note", action="append", default=[], help="a sentence on what falls short (repeatable)")
    parser.add_argument("--page-only", action="store_true", help="write the page from the CSV, search nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
