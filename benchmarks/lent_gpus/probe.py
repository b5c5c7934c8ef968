"""probe.py OUT SECONDS MODEL [CANDIDATES.json]: the all-reduce probe on all GPUs of this machine; see probe.sh."""

import json
import os
import sys
from pathlib import Path

from engine.gpus import visible_gpus
from interconnect.model_shape import Layout, ModelShape
from interconnect.probe import run_probe
from interconnect.traffic_model import best_curve, predict

out, seconds, model = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
candidates = json.loads(Path(sys.argv[4]).read_text()) if len(sys.argv) > 4 else None
shape = ModelShape.from_folder(model)
gpus = [gpu.index for gpu in visible_gpus()]
report = run_probe(
    os.environ["QUIETLANE_ENGINE"],
    gpus,
    candidates,
    shape=shape,
    concurrencies=(1, 8, 32),
    # ours must not leak into the engine's interpreter
    environment={"PYTHONPATH": os.environ.get("QUIETLANE_ENGINE_SITE", "/tmp/site")},
    progress=lambda line: print(line, flush=True),
    within_s=seconds,
)
print(report.as_text())
good = [one.result for one in report.ranked if one.result.failure is None]
predictions = {}
if good:
    floor = best_curve([result.curve() for result in good])
    for result in good:
        curve, layout = result.curve(), Layout(result.ranks)
        told = [predict(shape, layout, curve, concurrency=c, floor=floor) for c in (1, 8, 32)]
        predictions[result.label] = {one.concurrency: one.__dict__ for one in told}
        print(f"{result.label}: {told[1].sentence()}")
(out / "probe.json").write_text(json.dumps({**report.as_dict(), "predictions": predictions}, indent=1))
