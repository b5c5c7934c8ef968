"""A stall is silence in every respect, beyond what the phase ever took."""

from dataclasses import replace
from typing import Any

import pytest

from engine.stalls import Patience, StallWatch, VitalSigns, phase_limit_s, signs_of_life

PATIENCE = Patience(phase_s=100, quiet_s=30, busy_factor=4, look_s=5)
STILL = VitalSigns(0.0, 1000, {1: 10.0, 2: 10.0}, 5_000_000, {0: 80.0, 1: 80.0})


def first_stall(change: Any, limit_s: float = 100, until_s: float = 2000) -> tuple[float, str] | None:
    """When, and why, an engine whose signs change so is stalled; ``change(signs, seconds)``."""
    watch = StallWatch(PATIENCE)
    for second in range(0, int(until_s), 5):
        why = watch.stalled(replace(change(STILL, second), at_s=float(second)), float(second), limit_s)
        if why:
            return float(second), why
    return None


def test_a_start_without_any_sign_is_stalled_once_its_phase_has_outlived_its_limit() -> None:
    stall = first_stall(lambda signs, _: signs)
    assert stall is not None
    assert stall[0] == 105
    assert stall[1] == "no output, CPU time, I/O or change of GPU memory for 105 s"


@pytest.mark.parametrize(
    "change",
    [
        lambda signs, second: replace(signs, log_bytes=signs.log_bytes + second),
        lambda signs, second: replace(signs, io_bytes=signs.io_bytes + second * 1_000_000),
        lambda signs, second: replace(signs, gpu_memory_gb={0: 80.0 + second * 0.01, 1: 80.0}),
        lambda signs, _: replace(signs, compilers=("nvcc",)),
    ],
    ids=["output", "a slow disk", "GPU memory", "kernels being compiled"],
)
def test_a_silent_but_working_start_is_no_stall(change: Any) -> None:
    assert first_stall(change) is None


def test_work_on_one_core_is_no_stall_for_four_times_as_long_and_then_is_one() -> None:
    stall = first_stall(lambda signs, second: replace(signs, cpu_s={1: 10.0 + second, 2: 10.0}))
    assert stall is not None
    assert stall[0] == 405
    assert "nothing but CPU time" in stall[1]


def test_the_breathing_of_many_idle_threads_is_no_work() -> None:
    stall = first_stall(lambda signs, second: replace(signs, cpu_s=dict.fromkeys(range(20), second * 0.04)))
    assert stall is not None
    assert stall[0] < 130


def test_one_sign_begins_the_silence_anew() -> None:
    stall = first_stall(lambda signs, second: replace(signs, log_bytes=2000 if second >= 90 else 1000))
    assert stall is not None
    assert stall[0] == 120


def test_a_history_shortens_or_lengthens_what_a_phase_may_take() -> None:
    assert phase_limit_s(20, 25, PATIENCE) == 60
    assert phase_limit_s(2, 3, PATIENCE) == PATIENCE.quiet_s
    assert phase_limit_s(400, 1500, PATIENCE) == 3000


def test_a_process_that_has_just_begun_counts_with_its_whole_time() -> None:
    assert signs_of_life(STILL, replace(STILL, at_s=5.0, cpu_s={**STILL.cpu_s, 3: 4.0})) == {"CPU time"}
    assert signs_of_life(STILL, replace(STILL, at_s=5.0, waits_for_disk=True)) == {"disk wait"}
