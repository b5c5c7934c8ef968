"""How the GPUs of a box hang together, as plain data, and what ``nvidia-smi topo -m`` says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# nvidia-smi's words, nearest first, with what a packet passes on its way. NVx is x NVLinks.
RELATIONS = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's root complex",
    "NODE": "several root complexes of one NUMA node",
    "SYS": "the link between CPU sockets",
}
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Link:
    """A PCIe link as trained and as it could be; ``None`` where unknown.

    ``max_generation`` is what GPU and slot can do together, ``gpu_generation`` what the GPU alone can.
    """

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None
    gpu_generation: int | None = None


@dataclass(frozen=True)
class GpuPlace:
    """One GPU and where it sits.

    Attributes:
        bridges: PCI addresses above it, from the root port down to the switch port it hangs on.
        performance_state: 0 at full clocks; an idle GPU (8) lowers its link's generation to save power.
        bar1_gb: the window through which peers and the CPU reach its memory.
        slowed_by: reasons that NVML gives for lower clocks (power cap, heat).
    """

    index: int
    name: str
    uuid: str = ""
    bus_id: str = ""
    memory_gb: float | None = None
    link: Link = Link()
    numa_node: int | None = None
    cpu_affinity: str | None = None
    bridges: tuple[str, ...] = ()
    performance_state: int | None = None
    bar1_gb: float | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    clock_limit_mhz: int | None = None
    clock_max_mhz: int | None = None
    slowed_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pair:
    """Two GPUs: nvidia-smi's word for the way between them, and whether they may read and write each other's memory.

    ``p2p`` is ``ok`` or NVML's reason why not; ``None`` where unknown.
    """

    first: int
    second: int
    relation: str | None = None
    p2p: str | None = None

    @property
    def nvlinks(self) -> int:
        """NVLinks between the two."""
        match = re.fullmatch(r"NV(\d+)", self.relation or "")
        return int(match[1]) if match else 0


@dataclass(frozen=True)
class Topology:
    """A whole box.

    Attributes:
        acs_redirecting: bridges above a GPU whose access control services send peer traffic up to the root complex.
        acs_unreadable: bridges whose extended configuration cannot be read (without root, or in a virtual machine).
        iommu: ``off``, ``passthrough``, ``translating`` or ``None`` where unknown.
        driver_parameters: those of the kernel modules and of the kernel's command line that matter to peer traffic.
        missing: what could not be read, with the reason.
    """

    gpus: tuple[GpuPlace, ...] = ()
    pairs: tuple[Pair, ...] = ()
    acs_redirecting: tuple[str, ...] = ()
    acs_unreadable: tuple[str, ...] = ()
    iommu: str | None = None
    virtual_machine: bool = False
    driver: str | None = None
    cuda_driver: int | None = None
    driver_parameters: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_nvlink(self) -> bool:
        """Any pair is joined by NVLink."""
        return any(pair.nvlinks for pair in self.pairs)

    @property
    def pcie_only(self) -> bool:
        """Several GPUs, all pairs known, none of them joined by NVLink."""
        return bool(self.pairs) and all(pair.relation for pair in self.pairs) and not self.has_nvlink

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as written in JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Topology:
        """The topology of :meth:`as_dict`; a recorded one in tests."""
        given = dict(values)
        given["gpus"] = tuple(
            GpuPlace(
                **{
                    **gpu,
                    "link": Link(**gpu.get("link", {})),
                    "bridges": tuple(gpu.get("bridges", ())),
                    "slowed_by": tuple(gpu.get("slowed_by", ())),
                }
            )
            for gpu in given.get("gpus", ())
        )
        given["pairs"] = tuple(Pair(**pair) for pair in given.get("pairs", ()))
        for name in ("acs_redirecting", "acs_unreadable"):
            given[name] = tuple(given.get(name, ()))
        return cls(**given)


@dataclass(frozen=True)
class Matrix:
    """``nvidia-smi topo -m``: the relation of each pair of GPUs (lower index first), CPUs and NUMA node of each GPU."""

    relations: Mapping[tuple[int, int], str]
    cpu_affinity: Mapping[int, str]
    numa_node: Mapping[int, int]


def parse_matrix(text: str) -> Matrix:
    """Read ``nvidia-smi topo -m``; lines that are no row of a GPU (network cards, the legend) are passed over."""
    relations: dict[tuple[int, int], str] = {}
    affinity: dict[int, str] = {}
    nodes: dict[int, int] = {}
    columns: list[str] = []
    for line in _ESCAPES.sub("", text).splitlines():
        words = line.split()
        if not columns and words and words[0] == "GPU0" and "X" not in words:
            columns = words[: words.index("CPU")] if "CPU" in words else words
            continue
        row = re.fullmatch(r"GPU(\d+)", words[0]) if words else None
        if row is None or "X" not in words:
            continue
        first = int(row[1])
        columns = columns or [f"GPU{place}" for place in range(_relation_words(words[1:]))]
        for name, relation in zip(columns, words[1:], strict=False):
            column = re.fullmatch(r"GPU(\d+)", name)
            if column and relation != "X":
                second = int(column[1])
                relations[min(first, second), max(first, second)] = relation
        rest = words[1 + len(columns) :]
        if rest and re.fullmatch(r"[0-9,-]+", rest[0]):
            affinity[first] = rest[0]
            if len(rest) > 1 and rest[1].isdigit():
                nodes[first] = int(rest[1])
    return Matrix(relations, affinity, nodes)


def _relation_words(words: list[str]) -> int:
    """How many words of a row without a header are relations."""
    count = 0
    for word in words:
        if word != "X" and word not in RELATIONS and not re.fullmatch(r"NV\d+", word):
            break
        count += 1
    return count


def way(relation: str | None) -> str:
    """A relation in words."""
    if relation is None:
        return "an unknown way"
    nvlinks = re.fullmatch(r"NV(\d+)", relation)
    return f"{nvlinks[1]} NVLinks" if nvlinks else RELATIONS.get(relation, relation)
