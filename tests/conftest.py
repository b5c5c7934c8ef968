"""What every test needs before anything is imported."""

import os

# As quietlane itself does (flows/surroundings.py): the sampler's matrices are small, threads only wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
