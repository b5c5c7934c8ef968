"""The tally of search strategies: it runs, resumes, judges by true values, and replays recorded grids."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.search import run
from benchmarks.search.analysis.outcomes import judge, paired, read
from benchmarks.search.strategies.trace import begin
from benchmarks.search.surfaces import FAMILIES, make
from benchmarks.search.surfaces.recorded import RecordingError, load

GRID = """# two GPUs, invented for this test
parameter.steps,parameter.graphs,value,crash
0,True,100,
0,True,102,
0,False,80,
2,True,130,
2,True,131,
2,False,,out of memory
4,True,120,
4,False,90,
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.csv"
    path.write_text(GRID)
    path.with_suffix(".md").write_text("# What was measured\n")
    return path


def test_a_stopped_tally_continues_and_writes_its_page(grid: Path, tmp_path: Path) -> None:
    out = tmp_path / "tally.md"
    arguments = ["--families", "--recorded", str(grid), "--launches", "15", "--out", str(out)]
    assert run.main([*arguments, "--seeds", "1", "--strategies", "random", "staged grid"]) == 0
    first = read(out.with_suffix(".csv"))
    assert {(o.seed, o.strategy) for o in first} == {(1000, "random"), (1000, "staged grid")}
    assert run.main([*arguments, "--seeds", "2", "--strategies", "random"]) == 0
    rows = read(out.with_suffix(".csv"))
    assert rows[: len(first)] == first
    assert len(rows) == len(first) + 1
    assert "staged grid" in out.read_text()


def test_an_empty_tally_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--page-only", "--out", str(tmp_path / "none.md")]) == 1
    assert "run without --page-only first" in capsys.readouterr().err


def test_recorded_grid_replays_its_samples_and_crashes(grid: Path) -> None:
    surface = load(grid, seed=3)
    rng = np.random.default_rng(0)
    assert {surface.measure({"steps": 0, "graphs": "True"}, rng) for _ in range(20)} == {100.0, 102.0}
    assert surface.crash({"steps": 2, "graphs": "False"}) == "out of memory"
    assert surface.optimum == ({"steps": 2, "graphs": "True"}, 130.5)


def test_recorded_grid_without_its_card_is_refused(grid: Path) -> None:
    grid.with_suffix(".md").unlink()
    with pytest.raises(RecordingError, match=r"grid\.md is missing"):
        load(grid, seed=3)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_family_is_drawn_from_its_seed_alone(family: str) -> None:
    one, same, other = make(family, 7), make(family, 7), make(family, 8)
    drawn = [one.space.sample(np.random.default_rng(n)) for n in range(20)]
    assert [one.true(a) for a in drawn] == [same.true(a) for a in drawn]
    assert [one.true(a) for a in drawn] != [other.true(a) for a in drawn]
    assert all(one.true(known) > 0 for known in one.known_good)
    assert 0.1 < np.mean([make(family, seed).share_of_random_crashes(60) for seed in range(4)]) < 0.8


def test_judgement_looks_at_the_true_value_and_calls_false_winners() -> None:
    surface = make("additive", 7)
    trace = begin(surface, 7)
    worse, better = sorted(surface.known_good, key=surface.true)[:: len(surface.known_good) - 1]
    for assignment in (worse, better):
        trace.launch(assignment)
    trace.named[2] = worse
    (outcome,) = judge(trace, "x", [2], optimum=surface.true(better))
    assert outcome.reached == pytest.approx(100 * surface.true(worse) / surface.true(better), abs=0.01)
    assert outcome.best_launched == 100.0
    assert outcome.false_winner == (outcome.reached < 98.0)
    assert paired([outcome], [outcome]) is None  # one seed is no comparison
