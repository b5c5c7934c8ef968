"""What the doctor says of recorded machines."""

import dataclasses
import io
import itertools
import json
import sys
from pathlib import Path

import pytest

from engine.gpus import ForeignProcess
from interconnect.checks import Machine
from interconnect.doctor import as_text, judge, run
from interconnect.host import EngineInstallation, Host, ask_interpreter, read_host
from interconnect.topology import GpuPlace, Link, Pair, Topology, parse_matrix

FIXTURES = Path(__file__).parents[1] / "fixtures" / "topology"
HOST = Host(512, 480, 0.0, 64, 60, {name: f"/usr/bin/{name}" for name in ("nvcc", "ptxas", "ninja", "c++")})


def box(name="two-sockets-direct", **changes):
    """A healthy box of that matrix."""
    matrix = parse_matrix((FIXTURES / f"{name}.txt").read_text())
    gpus = tuple(
        GpuPlace(
            index,
            "NVIDIA RTX PRO 6000 Blackwell",
            bus_id=f"0000:{index + 16:02x}:00.0",
            memory_gb=95.6,
            link=Link(5, 16, 5, 16, 5),
            numa_node=matrix.numa_node[index],
            bridges=(f"0000:{index + 1:02x}:00.0",),
            performance_state=0,
            bar1_gb=128,
            power_limit_w=600,
            power_default_w=600,
        )
        for index in matrix.numa_node
    )
    pairs = tuple(Pair(a, b, matrix.relations[a, b], "ok") for a, b in itertools.combinations(matrix.numa_node, 2))
    return dataclasses.replace(Topology(gpus, pairs, iommu="off", driver="580.65", cuda_driver=13000), **changes)


def with_gpu(topology, index, **changes):
    gpus = list(topology.gpus)
    gpus[index] = dataclasses.replace(gpus[index], **changes)
    return dataclasses.replace(topology, gpus=tuple(gpus))


def found(machine):
    return {check.name: check for check in judge(machine).findings}


def test_a_healthy_box_has_no_findings_but_a_note_on_its_sockets():
    report = judge(Machine(box(), HOST))
    assert report.exit_status == 0
    assert [check.name for check in report.findings] == ["sockets"]
    assert judge(Machine(box("one-socket-two-switches"), HOST)).findings == ()


CASES = {
    "PCIe link of GPU 2": ("warning", Machine(with_gpu(box(), 2, link=Link(5, 8, 5, 16, 5)), HOST), "8 lanes of 16"),
    "PCIe link of GPU 3": ("warning", Machine(with_gpu(box(), 3, link=Link(4, 16, 5, 16, 5)), HOST), "Gen4"),
    "PCIe link of GPU 4": ("warning", Machine(with_gpu(box(), 4, link=Link(4, 16, 4, 16, 5)), HOST), "slot"),
    "peer access": (
        "warning",
        Machine(box(pairs=(Pair(0, 1, "PHB", "chipset not supported"), *box().pairs[1:])), HOST),
        "chipset not supported",
    ),
    "ACS": ("warning", Machine(box(acs_redirecting=("0000:01:00.0",)), HOST), "root complex"),
    "IOMMU": ("warning", Machine(box(iommu="translating"), HOST), "translates"),
    "BAR1": ("warning", Machine(with_gpu(box(), 1, bar1_gb=0.25), HOST), "resizable BAR"),
    "HMM": ("note", Machine(box(driver_parameters={"nvidia_uvm.uvm_disable_hmm": "N"}), HOST), "memory management"),
    "ASPM": ("warning", Machine(box(driver_parameters={"pcie_aspm.policy": "default [powersave]"}), HOST), "sleep"),
    "power and clocks of GPU 0": ("warning", Machine(with_gpu(box(), 0, power_limit_w=300), HOST), "300 W of its 600"),
    "power and clocks of GPU 5": ("warning", Machine(with_gpu(box(), 5, slowed_by=("heat (hardware)",)), HOST), "heat"),
    "other processes on the GPUs": (
        "error",
        Machine(box(), HOST, foreign=[ForeignProcess(1, 77, "alice", "python train.py")]),
        "not ours",
    ),
    "/dev/shm": (
        "error",
        Machine(box(), dataclasses.replace(HOST, shared_memory_gb=0.0625, shared_memory_free_gb=0.06)),
        "too small",
    ),
    "host memory": ("warning", Machine(box(), dataclasses.replace(HOST, weights_gb=600, largest_shard_gb=5)), "fit"),
    "weights": ("error", Machine(box(), dataclasses.replace(HOST, weights_missing="/m is not a folder")), "not found"),
    "swap": ("warning", Machine(box(), dataclasses.replace(HOST, swap_used_gb=3)), "disk"),
    "compilers": ("warning", Machine(box(), dataclasses.replace(HOST, compilers={"nvcc": None})), "nvcc"),
    "engine's versions": (
        "warning",
        Machine(box(), HOST, EngineInstallation({"sglang": "0.5.23"}, (("torch", "==2.14.1", "2.9"),))),
        "torch 2.9, wanted ==2.14.1",
    ),
    "FlashInfer": (
        "error",
        Machine(
            box(), HOST, EngineInstallation({"sglang": "1", "flashinfer-python": "0.7.2", "flashinfer-cubin": "0.7.1"})
        ),
        "different versions",
    ),
    "CUDA": (
        "error",
        Machine(box(cuda_driver=12080), HOST, EngineInstallation({"sglang": "1", "nvidia-cuda-runtime": "13.0.88"})),
        "CUDA 13",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_fault_is_found_with_its_cost_and_its_remedy(name):
    severity, machine, words = CASES[name]
    check = found(machine)[name]
    assert check.severity == severity
    assert words in check.finding.wrong
    assert check.finding.cost
    assert check.finding.change
    others = set(found(machine)) - {name, "sockets"}
    assert not others, "one fault, one finding"
    assert judge(machine).exit_status == {"note": 0, "warning": 1, "error": 2}[severity]


def test_an_idle_gpu_that_lowered_its_link_is_not_blamed():
    machine = Machine(with_gpu(box(), 0, link=Link(1, 16, 5, 16, 5), performance_state=8), HOST)
    assert "PCIe link of GPU 0" not in found(machine)
    assert "lowered while idle" in as_text(judge(machine))


def test_acs_that_cannot_be_read_is_unknown_and_no_fault():
    machine = Machine(box("h200x2-virtual-machine", virtual_machine=True, acs_unreadable=("0000:01:00.0",)), HOST)
    acs = next(check for check in judge(machine).checks if check.name == "ACS")
    assert acs.severity == "unknown"
    assert "virtual machine" in acs.reading


def test_two_files_of_weights_that_do_not_fit_into_memory_are_an_error():
    host = dataclasses.replace(HOST, weights_gb=200, largest_shard_gb=5, memory_available_gb=8)
    assert found(Machine(box(), host))["host memory"].severity == "error"


def test_weights_larger_than_all_gpus_are_an_error():
    host = dataclasses.replace(HOST, memory_gb=2000, memory_available_gb=1900, weights_gb=800, largest_shard_gb=5)
    assert found(Machine(box(), host))["weights"].severity == "error"


def test_without_a_gpu_it_says_so_in_a_sentence():
    report = judge(Machine(Topology(missing={"NVML": "NVML Shared Library Not Found"}), HOST))
    assert report.exit_status == 0
    assert "no GPU is seen here (NVML Shared Library Not Found)" in as_text(report)


def test_the_text_shows_the_way_between_each_two_gpus():
    assert "SYS: the link between CPU sockets" in as_text(judge(Machine(box(), HOST)))


def test_the_real_machine_is_examined_as_text_and_as_json(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(bytes(1024))
    out = io.StringIO()
    status = run(True, out, sys.executable, str(tmp_path))
    told = json.loads(out.getvalue())
    assert status == told["exit_status"] in (0, 1, 2)
    assert {"name", "reading", "severity", "finding"} == set(told["checks"][0])


def test_an_interpreter_that_does_not_exist_is_an_error_with_a_remedy():
    installation = ask_interpreter("/nowhere/python3")
    check = found(Machine(box(), HOST, installation))["engine's versions"]
    assert "/nowhere/python3" in check.reading


def test_a_model_that_is_no_folder_is_told():
    assert read_host("/nowhere/model").weights_missing == "/nowhere/model is not a folder on this host"
