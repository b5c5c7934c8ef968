"""What Linux knows of the PCI devices above a GPU: bridges, access control, IOMMU, module parameters.

Every reader takes the root of the file system, so that a recorded tree can stand in for it.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# PCI Express base specification, extended capabilities: the list begins at 0x100, ACS has identity 0x000D, its control
# register lies 6 bytes in; bits 2 and 3 redirect peer requests and completions.
_FIRST_EXTENDED = 0x100
_ACS = 0x000D
_REDIRECT = 0b1100
# Parameters under /sys/module/<module>/parameters and what of the kernel's command line decides about peer traffic.
_MODULE_PARAMETERS = {
    "nvidia_uvm": ("uvm_disable_hmm",),
    "pcie_aspm": ("policy",),
}
_DRIVER_SETTINGS = ("EnableResizableBar", "RegistryDwords", "GrdmaPciTopoCheckOverride", "DynamicPowerManagement")
_BOOT_WORDS = ("iommu", "intel_iommu", "amd_iommu", "pcie_aspm", "pcie_port_pm", "pci")


def sysfs_address(bus_id: str) -> str:
    """NVML's ``00000000:18:00.0`` as sysfs writes it, ``0000:18:00.0``."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def bridges_above(address: str, root: Path = Path("/")) -> tuple[str, ...]:
    """PCI addresses from the root port down to the port that the device hangs on; empty where unknown."""
    device = root / "sys/bus/pci/devices" / address
    try:
        parts = device.resolve(strict=True).parts
    except OSError:
        return ()
    return tuple(part for part in parts if _ADDRESS.fullmatch(part))[:-1]


def acs_control(configuration: bytes) -> int | None:
    """The ACS control register of a device's configuration space, ``None`` where it has none.

    Raises:
        ValueError: the bytes end before the extended capabilities (what an unprivileged reader gets).
    """
    if len(configuration) <= _FIRST_EXTENDED + 4:
        raise ValueError("the extended configuration space was not readable")
    place, seen = _FIRST_EXTENDED, set[int]()
    while place and place not in seen and place + 8 <= len(configuration):
        seen.add(place)
        (header,) = struct.unpack_from("<I", configuration, place)
        if header & 0xFFFF == _ACS:
            return int(struct.unpack_from("<H", configuration, place + 6)[0])
        place = header >> 20
    return None


def acs_of(addresses: set[str], root: Path = Path("/")) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of these bridges, (those that redirect peer traffic, those that cannot be read)."""
    redirecting, unreadable = [], []
    for address in sorted(addresses):
        try:
            control = acs_control((root / "sys/bus/pci/devices" / address / "config").read_bytes())
        except (OSError, ValueError):
            unreadable.append(address)
            continue
        if control is not None and control & _REDIRECT:
            redirecting.append(address)
    return tuple(redirecting), tuple(unreadable)


def iommu_mode(addresses: list[str], root: Path = Path("/")) -> str | None:
    """``off``, ``passthrough`` or ``translating`` for these devices; ``None`` where sysfs does not say."""
    kinds = set()
    for address in addresses:
        group = root / "sys/bus/pci/devices" / address / "iommu_group"
        if group.exists():
            kinds.add(_text(group / "type") or "unknown")
    if kinds:
        if any(kind.startswith("DMA") for kind in kinds):
            return "translating"
        return "passthrough" if kinds == {"identity"} else None
    if not (root / "sys/bus/pci/devices").exists():
        return None
    return "off"


def driver_parameters(root: Path = Path("/")) -> dict[str, str]:
    """Parameters of the NVIDIA modules, of PCIe power management, and words of the kernel's command line."""
    found: dict[str, str] = {}
    for module, names in _MODULE_PARAMETERS.items():
        for name in names:
            value = _text(root / "sys/module" / module / "parameters" / name)
            if value is not None:
                found[f"{module}.{name}"] = value
    for line in (_text(root / "proc/driver/nvidia/params") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _DRIVER_SETTINGS and value.strip().strip('"'):
            found[f"nvidia.{name.strip()}"] = value.strip().strip('"')
    for word in (_text(root / "proc/cmdline") or "").split():
        if word.partition("=")[0] in _BOOT_WORDS:
            found[f"boot {word.partition('=')[0]}"] = word.partition("=")[2]
    return found


def in_virtual_machine(root: Path = Path("/")) -> bool:
    """A hypervisor is between us and the machine."""
    return any(
        " hypervisor" in line for line in (_text(root / "proc/cpuinfo") or "").splitlines() if line.startswith("flags")
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
