"""What is read of a topology, on recorded matrices and recorded trees of PCI devices."""

import itertools
import struct
from pathlib import Path

import pytest

from interconnect.pci_tree import (
    acs_control,
    acs_of,
    bridges_above,
    driver_parameters,
    in_virtual_machine,
    iommu_mode,
    sysfs_address,
)
from interconnect.topology import GpuPlace, Link, Pair, Topology, parse_matrix, way
from interconnect.topology_reading import read_topology

FIXTURES = Path(__file__).parents[1] / "fixtures" / "topology"
GPU, PORT, ROOT_PORT = "0000:18:00.0", "0000:17:00.0", "0000:16:01.0"


def matrix(name):
    return parse_matrix((FIXTURES / f"{name}.txt").read_text())


def test_a_pair_of_h200_in_a_virtual_machine_is_joined_by_eighteen_nvlinks():
    read = matrix("h200x2-virtual-machine")
    assert read.relations == {(0, 1): "NV18"}
    assert read.cpu_affinity == {0: "0-31", 1: "0-31"}
    assert read.numa_node == {0: 0, 1: 0}


def test_the_matrix_is_read_without_header_and_tabs():
    read = parse_matrix("GPU0 X NV18 0-31 0 N/A\nGPU1 NV18 X 0-31 0 N/A\n")
    assert read.relations == {(0, 1): "NV18"}
    assert read.numa_node == {0: 0, 1: 0}


def test_direct_attached_gpus_of_two_sockets_cross_between_sockets():
    read = matrix("two-sockets-direct")
    assert read.relations[0, 3] == "NODE"
    assert read.relations[3, 4] == "SYS"
    assert len(read.relations) == 28
    assert read.cpu_affinity[7] == "64-127,192-255"
    assert read.numa_node[7] == 1


def test_switches_for_each_pair_show_within_the_pair_only():
    read = matrix("two-sockets-switch-per-pair")
    assert [read.relations[0, other] for other in range(1, 5)] == ["PIX", "NODE", "NODE", "SYS"]


@pytest.mark.parametrize(
    ("name", "between"), [("one-socket-two-switches", "PHB"), ("one-socket-four-switches", "NODE")]
)
def test_switches_of_one_socket_meet_at_its_root_complex(name, between):
    assert set(matrix(name).relations.values()) == {"PIX", between}


def test_network_cards_and_the_legend_are_no_gpus():
    text = (
        "\tGPU0\tNIC0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\tPIX\t0-7\n"
        "NIC0\tPHB\t X \tPHB\nGPU1\tPIX\tPHB\t X \t0-7\n  X = Self\n"
    )
    assert parse_matrix(text).relations == {(0, 1): "PIX"}


def test_a_topology_survives_json():
    gpus = tuple(GpuPlace(i, "A", link=Link(5, 16, 5, 16, 5), bridges=("a", "b")) for i in range(2))
    topology = Topology(gpus, (Pair(0, 1, "NV4", "ok"),), ("a",), iommu="off")
    assert Topology.from_dict(topology.as_dict()) == topology
    assert topology.has_nvlink
    assert not topology.pcie_only


def test_ways_are_told_in_words():
    assert way("NV18") == "18 NVLinks"
    assert way("PIX") == "one PCIe switch"


def configuration_space(acs_bits, before=0x0001):
    """A configuration space with one other extended capability before ACS."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, before | (1 << 16) | (0x148 << 20))
    struct.pack_into("<I", space, 0x148, 0x000D | (1 << 16))
    struct.pack_into("<H", space, 0x14E, acs_bits)
    return bytes(space)


@pytest.fixture
def tree(tmp_path):
    """A GPU below a switch port below a root port, as sysfs shows them; ACS redirects at the switch port."""
    real = tmp_path / "sys/devices/pci0000:16" / ROOT_PORT / PORT / GPU
    real.mkdir(parents=True)
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    for path in (real, real.parent, real.parent.parent):
        (devices / path.name).symlink_to(path)
    (real.parent / "config").write_bytes(configuration_space(0b11101))
    (real.parent.parent / "config").write_bytes(configuration_space(0b00001))
    return tmp_path


def test_the_bridges_above_a_gpu_are_those_of_its_path(tree):
    assert bridges_above(GPU, tree) == (ROOT_PORT, PORT)
    assert bridges_above("0000:99:00.0", tree) == ()


def test_acs_counts_where_it_redirects_and_not_where_it_only_validates(tree):
    assert acs_of({PORT, ROOT_PORT}, tree) == ((PORT,), ())


def test_a_configuration_space_that_ends_early_is_unreadable_and_not_free_of_acs(tree):
    (tree / "sys/bus/pci/devices" / PORT / "config").write_bytes(bytes(64))
    assert acs_of({PORT}, tree) == ((), (PORT,))
    with pytest.raises(ValueError, match="not readable"):
        acs_control(bytes(64))


def test_a_circle_of_capabilities_ends():
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | (0x100 << 20))
    assert acs_control(bytes(space)) is None


@pytest.mark.parametrize(
    ("kind", "mode"), [("DMA", "translating"), ("DMA-FQ", "translating"), ("identity", "passthrough")]
)
def test_the_iommu_mode_is_that_of_the_groups(tree, kind, mode):
    group = tree / "sys/bus/pci/devices" / GPU / "iommu_group"
    group.mkdir()
    (group / "type").write_text(kind + "\n")
    assert iommu_mode([GPU], tree) == mode


def test_no_group_is_no_iommu_and_no_sysfs_is_unknown(tree, tmp_path):
    assert iommu_mode([GPU], tree) == "off"
    assert iommu_mode([GPU], tmp_path / "nothing") is None


def test_driver_settings_and_words_of_the_command_line_are_found(tmp_path):
    for name, text in {
        "proc/cmdline": "root=/dev/sda iommu=pt pcie_aspm=off quiet",
        "proc/driver/nvidia/params": 'EnableResizableBar: 1\nRegistryDwords: "ForceP2P=0x11"\nOther: 3\n',
        "sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "N\n",
        "proc/cpuinfo": "flags\t\t: fpu hypervisor sse\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert driver_parameters(tmp_path) == {
        "nvidia_uvm.uvm_disable_hmm": "N",
        "nvidia.EnableResizableBar": "1",
        "nvidia.RegistryDwords": "ForceP2P=0x11",
        "boot iommu": "pt",
        "boot pcie_aspm": "off",
    }
    assert in_virtual_machine(tmp_path)


def test_nvml_addresses_become_those_of_sysfs():
    assert sysfs_address("00000000:18:00.0") == "0000:18:00.0"


def test_reading_works_with_and_without_a_driver():
    topology = read_topology()
    assert len(topology.pairs) == len(list(itertools.combinations(topology.gpus, 2)))
    assert topology.gpus or topology.missing["NVML"]
