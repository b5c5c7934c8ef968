"""All-reduces of known times: 1 ms, 0.2 ms with NCCL_PROTO=LL, and whatever goes wrong under ``KNOWN_TORCH``."""

import os
import sys
import time


class group:
    """As torch's."""

    WORLD = None


_HOW = os.environ.get("KNOWN_TORCH", "")
_set = {}


def init_process_group(backend, init_method, rank, world_size, timeout):
    _set.update(rank=rank, world=world_size)
    if _HOW == "no shared memory":
        print("NCCL WARN Error while creating shared memory segment /dev/shm/nccl-1 (size 9637888)", file=sys.stderr)
        raise RuntimeError("NCCL error: unhandled system error; No space left on device (28)")
    if _HOW == "second rank killed":
        if rank == 1:
            os.kill(os.getpid(), 9)
        time.sleep(60)


def all_reduce(tensor):
    if _HOW == "hang" and os.environ.get("NCCL_P2P_DISABLE") != "1":
        time.sleep(60)
    world = _set["world"]
    tensor.value = 0.0 if _HOW == "wrong sum" else world * (world + 1) / 2
    time.sleep(0.0002 if os.environ.get("NCCL_PROTO") == "LL" else 0.001)


def broadcast_object_list(box, src, group):
    pass


def barrier(group=None):
    pass
