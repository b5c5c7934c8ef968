"""Every step of a search is written as it happens and read back as it was, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.results import Distribution, Level, Measurement, RequestSample
from engine.configuration import Configuration
from engine.failure import Failure
from engine.phase import Phase
from storage import StorageError, Store

CONFIGURATION = Configuration({"--tp-size": 8, "--speculative-algorithm": "NEXTN"}, {"NCCL_ALGO": "Ring"})
SAMPLES = (
    RequestSample(1.5, 812.123456789012, 20.1, 100, 64, 8, (5.0, 1 / 3, 0.1 + 0.2), 2.71, 0.57),
    RequestSample(1.6, math.pi, None, 100, 0, error="connection reset"),
    RequestSample(1.7, 1e-300, 3.3, 1, 1),
)


def measurement(throughput: float = 172.2, level: Level | None = None) -> Measurement:
    level = level or Level(4, 32768, 64, 16)
    spread = Distribution(1 / 3, 2.0, 3.0, 4.0)
    figures = {"ttft_ms": spread, "itl_ms": spread, "tpot_ms": None, "latency_ms": spread}
    return Measurement(
        level, 1.7e9, 12.5, 2, 1, throughput, 3.1, **figures, acceptance_length=2.71, acceptance_rate=0.57,
        warm_up_s=3.0, steady=True, samples=SAMPLES, pcie_bytes_per_token=1.25e6, notes=("one failed",),
    )  # fmt: skip


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        yield opened


def test_a_launch_is_read_back_as_it_was_recorded(store: Store) -> None:
    environment = store.record_environment({"gpu": ["RTX PRO 6000"] * 8, "versions": {"sglang": "0.5.23"}})
    launch = store.begin_launch(
        "night", 3, "trial", CONFIGURATION, resolved={"tp_size": 8, "page_size": 1}, resolved_identity="abc",
        environment_id=environment, command=["python", "-m", "sglang.launch_server"], log_path=Path("/logs/3.log"),
    )  # fmt: skip
    assert store.launch(launch).outcome == "running"
    store.record_process(launch, 4242)
    store.record_ready(launch)
    store.record_server_info(launch, {"version": "0.5.23", "nan": math.nan})
    store.record_teardown(launch, {"seconds": 1.5, "survivors_killed": 0})
    failure = Failure("TP3", "serving", "out of memory", "configuration", "lower --mem-fraction-static", "line\nline")
    store.end_launch(launch, "failed", failure)
    read = store.launch(launch)
    assert (read.study_name, read.trial_number, read.purpose, read.pid) == ("night", 3, "trial", 4242)
    assert read.configuration == CONFIGURATION
    assert read.resolved == {"tp_size": 8, "page_size": 1}
    assert read.resolved_identity == "abc"
    assert read.command == ("python", "-m", "sglang.launch_server")
    assert read.failure == failure
    assert read.server_info is not None
    assert math.isnan(read.server_info["nan"])
    assert read.teardown == {"seconds": 1.5, "survivors_killed": 0}
    assert read.ready_at is not None
    assert read.ended_at is not None
    assert read.started_at <= read.ready_at <= read.ended_at
    assert store.launches("night", outcomes=["failed"], resolved_identity="abc") == (read,)
    assert store.launches("night", outcomes=["measured"]) == ()
    assert store.environment(environment).details["versions"] == {"sglang": "0.5.23"}


def test_phases_told_again_replace_what_was_known_of_them(store: Store) -> None:
    launch = store.begin_launch("night", 0, "trial", CONFIGURATION)
    store.record_phases(launch, [Phase("TP0", "weights", 1.0, progress=0.4), Phase("TP1", "weights", 1.0)])
    done = Phase("TP0", "weights", 1.0, 61.5, 54.2, 38.1, 1.0, True)
    store.record_phases(launch, [done, Phase("TP0", "target graphs", 62.5)])
    read = {(record.phase.rank, record.phase.name): record.phase for record in store.phases(launch)}
    assert read[("TP0", "weights")] == done
    assert set(read) == {("TP0", "weights"), ("TP1", "weights"), ("TP0", "target graphs")}
    assert store.phases(study="night") == store.phases(launch)


def test_samples_and_figures_come_back_without_any_loss(store: Store) -> None:
    launch = store.begin_launch("night", 0, "trial", CONFIGURATION)
    id = store.record_measurement(launch, measurement(), repeat=2)
    (read,) = store.measurements("night")
    assert read.measurement == replace(measurement(), samples=())
    assert (read.id, read.launch_id, read.trial_number, read.repeat) == (id, launch, 0, 2)
    assert store.samples(id) == SAMPLES
    assert store.measurements(launch_id=launch, level="c4-p32768") == (read,)


def test_figures_that_are_no_numbers_are_kept_too(store: Store) -> None:
    launch = store.begin_launch("night", 0, "trial", CONFIGURATION)
    store.record_measurement(launch, replace(measurement(), output_throughput=math.nan, acceptance_length=math.inf))
    (read,) = store.measurements("night")
    assert math.isnan(read.measurement.output_throughput)
    assert read.measurement.acceptance_length == math.inf


def test_repeats_are_averaged_by_the_database(store: Store) -> None:
    for trial, throughputs in enumerate([(100.0, 110.0), (50.0,)]):
        launch = store.begin_launch("night", trial, "trial", CONFIGURATION)
        for repeat, throughput in enumerate(throughputs):
            store.record_measurement(launch, measurement(throughput), repeat)
    store.record_measurement(store.begin_launch("other night", 0, "trial", CONFIGURATION), measurement(1.0))
    first, second = sorted(store.best_measurements("night"), key=lambda result: result.trial_number or 0)
    assert (first.repeats, first.output_throughput, first.output_throughput_min) == (2, 105.0, 100.0)
    assert (second.repeats, second.output_throughput, second.level) == (1, 50.0, "c4-p32768")
    assert store.best_measurements("night", trials=[1]) == (second,)


def test_the_same_environment_and_configuration_are_one_row(store: Store) -> None:
    assert store.record_environment({"a": 1, "b": 2}) == store.record_environment({"b": 2, "a": 1})
    assert store.record_configuration(CONFIGURATION) == store.record_configuration(CONFIGURATION)
    assert store.record_configuration(CONFIGURATION, {"x": 1}) != store.record_configuration(CONFIGURATION)
    assert {record.configuration for record in store.configurations()} == {CONFIGURATION}


def test_a_search_that_is_continued_keeps_its_beginning(store: Store) -> None:
    told = {"space": "nextn", "space_yaml": "name: nextn\n", "model": "/m"}
    first = store.record_search("night", baseline=CONFIGURATION, plan={"levels": [1]}, **told)
    began = store.search("night").created_at
    assert store.record_search("night", baseline=CONFIGURATION, plan={"levels": [1, 4]}, **told) == first
    read = store.search("night")
    assert (read.created_at, read.plan, read.baseline) == (began, {"levels": [1, 4]}, CONFIGURATION)
    assert store.searches() == (read,)


def test_an_artifact_is_kept_without_its_secrets(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("ServerArgs(api_key='s3cr3t-Value', tp_size=8)\nready\n")
    kept = store.record_artifact(log, "log", study="night")
    assert kept.path.read_text() == "ServerArgs(api_key='***', tp_size=8)\nready\n"
    assert kept.size_bytes == kept.path.stat().st_size
    assert store.artifacts("night", kind="log") == (kept,)
    assert store.record_artifact(log, "log", study="night").path == kept.path


def test_what_a_dead_process_left_is_lost_and_what_a_living_one_holds_is_not(store: Store, url: str) -> None:
    mine = store.begin_launch("night", 0, "trial", CONFIGURATION)
    done = store.begin_launch("night", 1, "trial", CONFIGURATION)
    store.end_launch(done, "measured")
    program = (
        "import sys; from storage import Store; from engine.configuration import Configuration\n"
        "Store.open(sys.argv[1]).begin_launch('night', 2, 'trial', Configuration())"
    )
    subprocess.run([sys.executable, "-c", program, url], check=True, timeout=60)
    (lost,) = store.sweep_unfinished()
    assert (lost.trial_number, lost.outcome) == (2, "lost")
    assert store.launch(mine).outcome == "running"
    assert store.launch(done).outcome == "measured"
    assert store.sweep_unfinished() == ()


def test_a_row_that_another_hand_spoilt_stops_nothing(store: Store) -> None:
    launch = store.begin_launch("night", 0, "trial", CONFIGURATION)
    id = store.record_measurement(launch, measurement())
    store.record_server_info(launch, {"a": 1})
    with store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE launches SET server_info = '{broken'")
        connection.exec_driver_sql("UPDATE configurations SET asked = 'broken'")
        connection.exec_driver_sql("UPDATE measurement_details SET detail = '[1]'")
    assert store.launch(launch).server_info == {"unreadable": "{broken"}
    assert store.launch(launch).configuration == Configuration()
    assert store.measurements("night") == ()
    assert len(store.samples(id)) == len(SAMPLES)


def test_a_launch_that_does_not_exist_is_named(store: Store) -> None:
    with pytest.raises(StorageError, match="no launch 99"):
        store.end_launch(99, "measured")
    with pytest.raises(StorageError, match="no measurement 99"):
        store.samples(99)
    with pytest.raises(StorageError, match="no search 'day'"):
        store.search("day")


def test_no_secret_is_found_anywhere_in_the_database(store: Store, tmp_path: Path) -> None:
    secret = "plAnted-5ecret"
    configuration = Configuration({"--api-key": secret, "--tokenizer-path": "/tok"}, {"HF_TOKEN": secret})
    launch = store.begin_launch(
        "night", 0, "trial", configuration, resolved={"api_key": secret}, command=["serve", "--api-key", secret]
    )
    store.record_server_info(launch, {"api_key": secret, "nested": [{"admin_api_key": secret}]})
    store.record_search(
        "night", space="s", space_yaml=f"environment:\n  HF_TOKEN: {secret}\n", model="/m", baseline=configuration
    )
    store.record_environment({"environment": {"HF_TOKEN": secret}})
    failed = replace(measurement(), samples=(RequestSample(1, 2, None, 1, 0, error=f"401 for {secret}"),))
    store.record_measurement(launch, replace(failed, notes=(f"key {secret}",)))
    evidence = Failure("main", "arguments", f"bad {secret}", "configuration", "", f"api_key='{secret}'")
    store.end_launch(launch, "failed", evidence)
    assert store.launch(launch).configuration.flags["--tokenizer-path"] == "/tok"
    assert store.launch(launch).configuration.identity() == store.stored_configuration(configuration).identity()
    (measured,) = store.measurements("night")
    everything = [
        store.launches(), store.configurations(), store.environments(), store.searches(), measured,
        store.samples(measured.id),
    ]  # fmt: skip
    assert secret not in repr(everything)
    for file in tmp_path.rglob("study.db*"):
        assert secret.encode() not in file.read_bytes()
