"""Checks of what lies between the GPUs: links, peer access, ACS, IOMMU, BAR1, kernel and driver settings.

What each costs was measured by others on boxes of eight PCIe GPUs; figures are orders of magnitude.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from interconnect.checks import Check, Machine, bad
from interconnect.topology import way

# Full clocks: only there does the link's generation tell how it was trained.
_WORKING_STATES = (0, 1, 2)


def gpus(machine: Machine) -> Iterator[Check]:
    """Which GPUs there are."""
    topology = machine.topology
    if not topology.gpus:
        why = topology.missing.get("NVML", "no GPU in this host")
        yield Check("GPUs", f"no GPU is seen here ({why}), so links and peer access cannot be examined", "unknown")
        return
    names = Counter(gpu.name for gpu in topology.gpus)
    reading = ", ".join(f"{count} x {name}" for name, count in names.items())
    if len(names) > 1:
        yield bad(
            "GPUs",
            reading,
            "warning",
            "The GPUs are of different kinds.",
            "Tensor parallelism runs at the pace of the slowest and fits the memory of the smallest.",
            "Choose equal GPUs with CUDA_VISIBLE_DEVICES.",
        )
    else:
        yield Check("GPUs", f"{reading}, driver {topology.driver or 'unknown'}")


def links(machine: Machine) -> Iterator[Check]:
    """Each PCIe link, against what GPU and slot can do."""
    for gpu in machine.topology.gpus:
        link, name = gpu.link, f"PCIe link of GPU {gpu.index}"
        if link.width is None or link.generation is None:
            yield Check(name, "NVML does not tell its generation and width", "unknown")
            continue
        reading = f"Gen{link.generation} x{link.width} of Gen{link.max_generation} x{link.max_width}"
        working = gpu.performance_state is None or gpu.performance_state in _WORKING_STATES
        slot = " A riser, a dirty contact, bifurcation or the slot's setting in the firmware are the usual causes."
        if link.max_width and link.width < link.max_width:
            yield bad(
                name,
                reading,
                "warning",
                f"GPU {gpu.index} runs on {link.width} lanes of {link.max_width}.",
                f"Large all-reduces wait for this link: {link.max_width / link.width:.0f} times longer.",
                f"Reseat GPU {gpu.index} ({gpu.bus_id}) and check its slot.{slot}",
            )
        elif link.max_generation and link.generation < link.max_generation and working:
            yield bad(
                name,
                reading,
                "warning",
                f"GPU {gpu.index} trained to Gen{link.generation}; GPU and slot can do Gen{link.max_generation}.",
                f"Half the bandwidth a generation: {2 ** (link.max_generation - link.generation)} times longer.",
                f"Reseat GPU {gpu.index} ({gpu.bus_id}), and set the slot's speed in the firmware.{slot}",
            )
        elif link.gpu_generation and link.max_generation and link.max_generation < link.gpu_generation:
            yield bad(
                name,
                reading,
                "warning",
                f"The slot of GPU {gpu.index} offers Gen{link.max_generation}, the GPU Gen{link.gpu_generation}.",
                "Half the bandwidth for each generation that is missing.",
                f"Set the speed of the slot of {gpu.bus_id} in the firmware, or use a slot of that generation.",
            )
        else:
            idle = "" if working or link.generation == link.max_generation else " (lowered while idle)"
            yield Check(name, reading + idle)


def peer_access(machine: Machine) -> Iterator[Check]:
    """Whether the GPUs of each pair may read and write each other's memory."""
    pairs = machine.topology.pairs
    if not pairs:
        return
    ways = Counter(pair.relation for pair in pairs)
    reading = ", ".join(f"{count} pair{'s' if count > 1 else ''} through {way(word)}" for word, count in ways.items())
    unknown = [pair for pair in pairs if pair.p2p is None]
    refused = [pair for pair in pairs if pair.p2p not in (None, "ok")]
    if refused:
        one = refused[0]
        yield bad(
            "peer access",
            reading,
            "warning",
            f"{len(refused)} of {len(pairs)} pairs lack peer access; GPU {one.first} and {one.second}: {one.p2p}.",
            "Every message goes through host memory: about 14 us instead of 0.4 us for a small one.",
            "Switch ACS off, boot with iommu=off or pt, use a driver that allows P2P; else set NCCL_P2P_DISABLE=1.",
        )
    elif unknown:
        yield Check("peer access", f"{reading}; NVML does not tell for {len(unknown)} pairs", "unknown")
    else:
        yield Check("peer access", f"{reading}; P2P everywhere")
    if ways.get("SYS") and ways.get("SYS") != len(pairs):
        yield bad(
            "sockets",
            f"{ways['SYS']} of {len(pairs)} pairs cross the link between CPU sockets",
            "note",
            "The GPUs hang on several CPU sockets.",
            "Peer traffic across is 39 to 51 GB/s instead of 53 to 56, and collapses when all send at once.",
            "Try tensor parallelism within a socket with pipeline stages or replicas across; probe NCCL_P2P_LEVEL.",
        )


def access_control(machine: Machine) -> Iterator[Check]:
    """ACS on the bridges above the GPUs."""
    topology = machine.topology
    if len(topology.gpus) < 2:
        return
    bridges = {bridge for gpu in topology.gpus for bridge in gpu.bridges}
    if topology.acs_redirecting:
        some = ", ".join(topology.acs_redirecting[:4]) + (" ..." if len(topology.acs_redirecting) > 4 else "")
        yield bad(
            "ACS",
            f"redirecting at {len(topology.acs_redirecting)} of {len(bridges)} bridges ({some})",
            "warning",
            "Access control services send peer traffic up to the root complex.",
            "GPUs behind one switch lose its short way, and P2P may hang at the first all-reduce.",
            "Switch ACS off in the firmware, or for each bridge after boot: setpci -s BRIDGE ECAP_ACS+6.w=0000.",
        )
    elif topology.acs_unreadable or not bridges:
        why = "this is a virtual machine" if topology.virtual_machine else "it takes root"
        yield Check("ACS", f"cannot be read here ({why}): {len(topology.acs_unreadable)} bridges", "unknown")
    else:
        yield Check("ACS", f"no redirection at {len(bridges)} bridges")


def iommu(machine: Machine) -> Iterator[Check]:
    """Whether the IOMMU translates what the GPUs send."""
    topology = machine.topology
    if not topology.gpus:
        return
    if topology.iommu == "translating" and len(topology.gpus) > 1:
        yield bad(
            "IOMMU",
            "translating",
            "warning",
            "The IOMMU translates the addresses of peer traffic.",
            "P2P is slow or hangs at the first all-reduce (GPUs at 100 %, about 140 W, no memory growth).",
            "Boot with iommu=off (amd_iommu=off or intel_iommu=off), or with iommu=pt where an IOMMU is needed.",
        )
    else:
        yield Check("IOMMU", topology.iommu or "unknown", "fine" if topology.iommu else "unknown")


def bar1(machine: Machine) -> Iterator[Check]:
    """The window to each GPU's memory (resizable BAR)."""
    known = [gpu for gpu in machine.topology.gpus if gpu.bar1_gb and gpu.memory_gb]
    if not known:
        return
    smallest = min(known, key=lambda gpu: (gpu.bar1_gb or 0) / (gpu.memory_gb or 1))
    reading = f"{smallest.bar1_gb:.2g} GB for {smallest.memory_gb:.0f} GB of memory"
    # NVML's total memory leaves out what the driver keeps, so a full window is a little larger than it.
    if (smallest.bar1_gb or 0) < 0.9 * (smallest.memory_gb or 0) and len(known) > 1:
        yield bad(
            "BAR1",
            reading,
            "warning",
            f"The window to the memory of GPU {smallest.index} is smaller than its memory: no resizable BAR.",
            "Peer writes over PCIe are staged or refused.",
            "Switch on Above 4G Decoding and Resizable BAR in the firmware, NVreg_EnableResizableBar=1 in the driver.",
        )
    else:
        yield Check("BAR1", reading)


def kernel_settings(machine: Machine) -> Iterator[Check]:
    """Settings of kernel and driver that decide about peer traffic on PCIe boxes."""
    topology = machine.topology
    if not topology.pcie_only:
        return
    settings = topology.driver_parameters
    if settings.get("nvidia_uvm.uvm_disable_hmm", "Y") in ("N", "0"):
        yield bad(
            "HMM",
            "uvm_disable_hmm=N",
            "note",
            "Heterogeneous memory management is on in nvidia_uvm.",
            "P2P lock-ups were seen with it on PCIe boxes.",
            "Set options nvidia_uvm uvm_disable_hmm=1 in /etc/modprobe.d and reload the module.",
        )
    policy = settings.get("pcie_aspm.policy", "")
    if settings.get("boot pcie_aspm") != "off" and ("[powersave]" in policy or "[powersupersave]" in policy):
        yield bad(
            "ASPM",
            policy,
            "warning",
            "PCIe links are put to sleep to save power.",
            "Latency at each wake-up, and surprise link-down errors that take the machine with them.",
            "Boot with pcie_aspm=off pcie_port_pm=off.",
        )


CHECKS = (gpus, links, peer_access, access_control, iommu, bar1, kernel_settings)
