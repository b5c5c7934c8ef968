"""In place of torch in the probe's ranks: tensors of one number. ``KNOWN_TORCH`` names how the ranks behave."""

import os
import time

if os.environ.get("KNOWN_TORCH") == "slow imports":
    time.sleep(60)

bfloat16 = "bfloat16"


class Tensor:
    """One number, whatever the shape."""

    def __init__(self, rows):
        self.rows, self.value = rows, 0.0

    def fill_(self, value):
        self.value = value

    def reshape(self, *_):
        return [self]

    def item(self):
        return self.value


def zeros(rows, hidden, dtype=None, device=None):
    return Tensor(rows)
