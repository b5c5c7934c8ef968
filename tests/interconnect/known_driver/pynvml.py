"""A driver of known GPUs, imported in place of pynvml by the sampler process: counters run at set rates.

``KNOWN_DRIVER`` is JSON: ``{"sent": bytes/s, "received": bytes/s, "nvlink": KiB/s or null, "counters": bool}``.
"""

import json
import os
import time
from types import SimpleNamespace

_SET = json.loads(os.environ.get("KNOWN_DRIVER", "null"))

NVML_FI_DEV_PCIE_COUNT_TX_BYTES = 197
NVML_FI_DEV_PCIE_COUNT_RX_BYTES = 198
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138
NVML_VALUE_TYPE_UNSIGNED_INT = 1
NVML_PCIE_UTIL_TX_BYTES = 0
NVML_PCIE_UTIL_RX_BYTES = 1
_MISSING = SimpleNamespace(nvmlReturn=3, valueType=3, value=SimpleNamespace(uiVal=0, ullVal=0))


class NVMLError(Exception):
    """As pynvml's."""


def nvmlInit():
    if _SET is None:
        raise NVMLError("NVML Shared Library Not Found")


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetMaxPcieLinkGeneration(handle):
    return 5


def nvmlDeviceGetMaxPcieLinkWidth(handle):
    return 16


def nvmlDeviceGetPcieThroughput(handle, kind):
    return int(_SET["received" if kind else "sent"] / 1024)


def nvmlDeviceGetFieldValues(handle, fields):
    now = time.monotonic()
    answers = []
    for one in fields:
        if isinstance(one, tuple):
            if _SET.get("nvlink") is None:
                answers.append(_MISSING)
                continue
            value = SimpleNamespace(uiVal=0, ullVal=int(now * _SET["nvlink"]))
            answers.append(SimpleNamespace(nvmlReturn=0, valueType=3, value=value))
            continue
        if not _SET.get("counters", True):
            answers.append(_MISSING)
            continue
        rate = _SET["sent" if one == NVML_FI_DEV_PCIE_COUNT_TX_BYTES else "received"]
        value = SimpleNamespace(uiVal=int(now * rate) % 2**32, ullVal=0)
        answers.append(SimpleNamespace(nvmlReturn=0, valueType=1, value=value))
    return answers
