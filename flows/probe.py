"""The flow ``probe``: how fast the GPUs of this machine all-reduce, setting by setting, in seconds each."""

from __future__ import annotations

from flows.surroundings import prepare

prepare()

import json  # noqa: E402
from pathlib import Path  # noqa: E402

from prefect import flow  # noqa: E402
from prefect.artifacts import create_markdown_artifact  # noqa: E402
from prefect.context import FlowRunContext  # noqa: E402
from pydantic import BaseModel, ConfigDict, Field  # noqa: E402

from engine.gpus import visible_gpus  # noqa: E402
from engine.locks import GpuLocks, HeldElsewhere  # noqa: E402
from flows.refused import Refused  # noqa: E402
from flows.voice import say  # noqa: E402
from interconnect.model_shape import ModelShape  # noqa: E402
from interconnect.probe import ProbeReport, run_probe  # noqa: E402
from search_spaces import SpaceError, load  # noqa: E402


class ProbeParameters(BaseModel):
    """One probe of the GPUs that a space uses."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    space: str = Field("nextn", description="The space whose engine, model and GPUs are meant.")
    gpus: tuple[int, ...] | None = Field(None, description="GPUs to use; as many as the space needs if empty.")
    concurrencies: tuple[int, ...] = Field(
        (1, 8, 32), min_length=1, description="Loads whose message sizes are probed."
    )
    minutes: float | None = Field(None, gt=0, le=24 * 60, description="Minutes after which no further setting begins.")
    output: Path = Field(Path("quietlane-runs"), description="Folder for probe.json and probe.md.")


def _probed(parameters: ProbeParameters) -> ProbeReport:
    try:
        space = load(parameters.space)
        shape = ModelShape.from_folder(space.model.path)
    except SpaceError as error:
        raise Refused(str(error)) from error
    except (OSError, ValueError) as error:
        raise Refused(f"the config.json of {space.model.path} cannot be read: {error}; name a local model") from error
    there = [gpu.index for gpu in visible_gpus()]
    gpus = parameters.gpus if parameters.gpus is not None else tuple(there[: space.engine.gpus])
    missing = sorted(set(gpus) - set(there))
    if missing:
        raise Refused(f"GPU {', '.join(map(str, missing))} is not visible here: choose others with --gpus")
    if not gpus:
        say(
            "No GPU is visible here: two processes on the CPU talk through gloo, which says nothing of PCIe.",
            warning=True,
        )
    try:
        with GpuLocks(gpus):
            return run_probe(
                space.engine.argv[0],
                gpus,
                shape=shape,
                concurrencies=parameters.concurrencies,
                environment=space.engine.base_environment,
                progress=say,
                within_s=parameters.minutes * 60 if parameters.minutes else None,
            )
    except HeldElsewhere as error:
        raise Refused(str(error)) from error


@flow(name="probe", flow_run_name="probe-{parameters.space}", persist_result=False)
def probe(parameters: ProbeParameters) -> dict[str, object]:
    """Probe every communication setting with the message sizes of the space's model, and rank them."""
    report = _probed(parameters)
    folder = parameters.output / "probe"
    folder.mkdir(parents=True, exist_ok=True)
    text = report.as_text()
    (folder / "probe.json").write_text(json.dumps(report.as_dict(), indent=1) + "\n")
    (folder / "probe.md").write_text(f"# All-reduce probe, {parameters.space}\n\n```\n{text}\n```\n")
    for line in text.splitlines():
        say(line)
    failure = report.environment_failure()
    if failure is not None:
        say(f"The environment is at fault: {failure.sentence()}; {failure.remedy}", warning=True)
    if FlowRunContext.get() is not None:
        create_markdown_artifact(
            f"```\n{text}\n```", key="probe", description=f"all-reduce probe of {parameters.space}"
        )
    return report.as_dict()
