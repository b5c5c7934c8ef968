"""Bytes from counters that wrap, and the observer over a driver whose counters run at known rates."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interconnect.counter_sampler import COUNTERS, GpuTraffic, Window
from interconnect.counters import NARROW, link_bytes_per_s, unwrap, wrap_s
from interconnect.sampling import PERIOD_S, CounterSampling, NoCounters
from interconnect.traffic import PcieObserver, mean_traffic, sampling_note

DRIVER = Path(__file__).with_name("known_driver")


@pytest.fixture
def driver(monkeypatch):
    """Set the rates of the known driver; without a call there is no driver."""
    monkeypatch.setenv("PYTHONPATH", str(DRIVER))

    def rates(**values):
        monkeypatch.setenv("KNOWN_DRIVER", json.dumps({"sent": 0, "received": 0, **values}))

    monkeypatch.delenv("KNOWN_DRIVER", raising=False)
    # the real pynvml must not be found before ours: PYTHONPATH precedes site-packages, the project's root holds none
    return rates


@given(start=st.integers(0, NARROW - 1), steps=st.lists(st.integers(0, NARROW - 1), max_size=50))
def test_bytes_are_exact_however_often_the_counter_wraps(start, steps):
    readings = [start]
    for passed in steps:
        readings.append((readings[-1] + passed) % NARROW)
    assert unwrap(readings) == sum(steps)


@given(start=st.integers(NARROW, 2**63), steps=st.lists(st.integers(0, 2**40), max_size=20))
def test_wide_counters_are_summed_without_wrapping(start, steps):
    readings = [start]
    for passed in steps:
        readings.append(readings[-1] + passed)
    assert unwrap(readings) == sum(steps)


def test_fewer_than_two_readings_are_no_bytes():
    assert unwrap([]) == unwrap([17]) == 0


def test_a_gen5_x16_link_wraps_in_about_seventy_milliseconds_and_we_read_eight_times_as_often():
    allowed = wrap_s(link_bytes_per_s(5, 16))
    assert allowed == pytest.approx(0.068, abs=0.001)
    assert allowed / PERIOD_S > 8


def test_idle_traffic_is_taken_off_and_never_makes_bytes_negative():
    window = Window(COUNTERS, 2.0, 250, 0.009, 0.1, {0: GpuTraffic(1000, 600), 1: GpuTraffic(3000, 200)})
    traffic = mean_traffic(window, 500, 1000)
    assert (traffic.sent_bytes, traffic.received_bytes, traffic.nvlink_bytes) == (1000, 0, None)


def test_a_gap_that_could_hide_a_wrap_makes_the_bytes_a_lower_bound():
    gpu = {0: GpuTraffic(10, 10, 10, link_bytes_per_s(5, 16))}
    assert "lower bound" in sampling_note(Window(COUNTERS, 1.0, 9, 0.2, 0.0, gpu))
    assert "lower bound" not in sampling_note(Window(COUNTERS, 1.0, 125, 0.012, 0.0, gpu))


def test_the_observer_counts_what_the_driver_says_beyond_idle_traffic(driver):
    # 8 GB/s wraps the counter every half second
    driver(sent=8e9, received=2e9, nvlink=1000)
    with PcieObserver([0, 1], idle_bytes_per_s=(1e9, 1e9)) as observer:
        observer.before_start()
        begin = time.monotonic()
        time.sleep(0.7)
        found = observer.after_finish()
        elapsed = time.monotonic() - begin
    assert found["pcie_bytes"] == pytest.approx(7e9 * elapsed, rel=0.25)
    assert found["pcie_bytes"] == pytest.approx(7e9 * observer.window.seconds, rel=0.02)
    assert found["nvlink_bytes"] == pytest.approx(1000 * 1024 * elapsed, rel=0.25)
    assert "largest step" in found["notes"][0]


def test_idle_traffic_is_measured_at_the_same_rate_of_reading(driver):
    driver(sent=8e6, received=6e6)
    with PcieObserver([0]) as observer:
        assert observer.measure_idle(0.3) == pytest.approx((8e6, 6e6), rel=0.02)
        observer.before_start()
        time.sleep(0.1)
        assert observer.after_finish()["pcie_bytes"] < 1e5


def test_without_byte_counters_the_throughput_is_integrated_and_the_note_says_so(driver):
    driver(sent=1e8, received=1e8, counters=False)
    with PcieObserver([0]) as observer:
        observer.before_start()
        time.sleep(0.3)
        found = observer.after_finish()
    assert found["pcie_bytes"] == pytest.approx(1e8 * observer.window.seconds, rel=0.1)
    assert "nvmlDeviceGetPcieThroughput" in found["notes"][0]


@pytest.mark.parametrize("gpus", [[], [0]])
def test_without_gpus_or_driver_nothing_is_counted_and_one_sentence_says_so(driver, gpus):
    with PcieObserver(gpus) as observer:
        assert observer.measure_idle(0.01) is None
        observer.before_start()
        found = observer.after_finish()
    assert "pcie_bytes" not in found
    assert len(found["notes"]) == 1
    assert "no PCIe traffic is counted" in found["notes"][0]


def test_a_sampler_that_died_is_told_and_raises_nothing_in_the_observer(driver):
    driver(sent=1e6, received=1e6)
    observer = PcieObserver([0])
    observer.before_start()
    observer._sampling._process.kill()
    assert "counters" in observer.after_finish()["notes"][0]
    observer.close()


def test_the_sampler_ends_when_its_owner_is_killed(driver, tmp_path):
    driver(sent=1e6, received=1e6)
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time; from interconnect.sampling import CounterSampling as C\n"
            "s = C([0]); s.start(); print(s._process.pid, flush=True); time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(DRIVER), str(DRIVER.parents[2])])},
    )
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z":
            break  # ended; whoever adopted it has not looked yet
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{pid}").exists()


def test_sampling_can_be_opened_again_after_it_was_closed(driver):
    driver(sent=1e6, received=1e6)
    with CounterSampling([0]) as sampling:
        sampling.start()
        sampling.close()
        sampling.start()
        assert sampling.stop().gpus[0].sent >= 0
    with pytest.raises(NoCounters):
        sampling.stop()
