"""A trial as a launch that works elsewhere: a script, a container, a unit, with the versions it was measured on."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import yaml

from report.launch_script import launch_script
from report.study_record import ReportError, StudyRecord

Form = Literal["sh", "docker", "compose", "systemd", "k8s"]
FORMS: tuple[str, ...] = get_args(Form)
PORT = 30000
# What storage puts in the place of a secret.
_HIDDEN = "***"
# Paths and numbers that mean something on the measured host only; a container brings its own.
_HOST_ONLY = frozenset(
    {"PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_VISIBLE_DEVICES"}
)
_IMAGE = "docker.io/lmsysorg/sglang"
_SHARED_MEMORY_GB = 32
# Where a container keeps what it downloads from the Hugging Face hub, so that it is downloaded once.
_HUB = "/huggingface"


@dataclass(frozen=True)
class Launch:
    """What a trial was launched with, ready to be written in any form.

    Attributes:
        command: the engine's whole command line, on loopback and port 30000.
        environment: variables that lie over the user's own.
        notes: sentences for the head of the file: study, versions, figures, what to look at.
        start_s: seconds that its start took; ``None`` where it never became ready.
    """

    name: str
    title: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    notes: tuple[str, ...]
    gpus: int
    model: str
    sglang: str | None
    start_s: float | None
    rehearsal: bool


def launch_of(record: StudyRecord, number: int) -> Launch:
    """A trial's launch. Raises ReportError for one that was never launched."""
    launch = record.main_launch(number)
    if launch is None or not launch.command:
        record.trial(number)
        raise ReportError(
            f"trial {number} of {record.name!r} was never launched, so there is no command to export: choose one that "
            f"was with quietlane leaderboard {record.name}"
        )
    command = _at(launch.command, {"--host": "127.0.0.1", "--port": str(PORT)})
    environment = {**record.base_environment, **launch.configuration.environment}
    versions = record.versions(launch)
    facts = record.facts(number)
    engine = record.space.get("engine") or {}
    flags = launch.configuration.flags
    notes = [
        f"study {record.name}, trial {number} ({record.label(number)})",
        "measured with " + (", ".join(f"{name} {version}" for name, version in versions.items()) or "unknown versions"),
    ]
    if facts and facts.throughput:
        notes.append("measured: " + ", ".join(f"{level} {rate:,.1f} tok/s" for level, rate in facts.throughput.items()))
    if facts and facts.failure:
        notes.append(f"CAREFUL, it did not work: {facts.failure}")
    if any(_HIDDEN in word for word in (*command, *environment.values())):
        notes.append(f"secrets are not kept: put them where {_HIDDEN} stands")
    return Launch(
        name=_name(f"{record.name}-trial-{number}"),
        title=f"trial {number} of {record.name}, as quietlane launched it",
        command=tuple(command),
        environment=environment,
        notes=tuple(notes),
        gpus=int(engine["gpus"] if engine.get("gpus") is not None else str(flags.get("--tp-size") or 1)),
        model=str(flags.get("--model-path") or (record.search.model if record.search else "")),
        sglang=versions.get("sglang"),
        start_s=launch.ready_at - launch.started_at if launch.ready_at else None,
        rehearsal=launch.rehearsal,
    )


def export(record: StudyRecord, number: int, form: str = "sh") -> str:
    """The text of a file that launches a trial. Raises ReportError."""
    writers: dict[str, Callable[[Launch], str]] = {
        "sh": _sh,
        "docker": _docker,
        "compose": _compose,
        "systemd": _systemd,
        "k8s": _k8s,
    }
    if form not in writers:
        raise ReportError(f"--as {form!r}: write one of {', '.join(FORMS)}")
    return writers[form](launch_of(record, number))


def _sh(launch: Launch) -> str:
    return launch_script(
        launch.command, launch.environment, title=launch.title, facts=launch.notes, rehearsal=launch.rehearsal
    )


def _docker(launch: Launch) -> str:
    lines = ["#!/bin/sh", *_head(launch), *_about_image(launch), "set -eu"]
    words = [["exec", "docker", "run", "--rm", "--name", launch.name], ["--ipc=host"]]
    if launch.gpus:
        words.append(["--gpus", str(launch.gpus)])
    words += [["--publish", f"127.0.0.1:{PORT}:{PORT}"], *(["--volume", one] for one in _volumes(launch))]
    words += [["--env", f"{name}={value}"] for name, value in _inside(launch).items()]
    words.append([_image(launch), *_arguments(launch)[:3]])
    words += by_flag(_arguments(launch)[3:])
    return "\n".join([*lines, " \\\n  ".join(shlex.join(one) for one in words) + ' "$@"', ""])


def _compose(launch: Launch) -> str:
    service: dict[str, Any] = {
        "image": _image(launch),
        "command": _arguments(launch),
        "environment": _inside(launch),
        "ports": [f"127.0.0.1:{PORT}:{PORT}"],
        "volumes": _volumes(launch),
        "ipc": "host",
        "restart": "unless-stopped",
        "healthcheck": {
            "test": ["CMD", "curl", "-fs", f"http://127.0.0.1:{PORT}/health"],
            "interval": "30s",
            "timeout": "25s",
            "start_period": f"{_patience_s(launch)}s",
        },
    }
    if launch.gpus:
        devices = [{"driver": "nvidia", "count": launch.gpus, "capabilities": ["gpu"]}]
        service["deploy"] = {"resources": {"reservations": {"devices": devices}}}
    # Compose takes $ for a variable of its own.
    return _yaml([*_head(launch), *_about_image(launch)], _doubled({"services": {launch.name: service}}, "$"))


def _systemd(launch: Launch) -> str:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
        return f'"{escaped}"' if not escaped or set(escaped) & set(" '\";\\") else escaped

    command = [quoted(word.replace("$", "$$")) for word in launch.command]
    return "\n".join(
        [
            *_head(launch),
            "# Save it as /etc/systemd/system/" + launch.name + ".service and set User=.",
            "[Unit]",
            f"Description=SGLang, {launch.name}",
            "After=network-online.target",
            "Wants=network-online.target",
            "",
            "[Service]",
            "Type=exec",
            *(f"Environment={quoted(f'{name}={value}')}" for name, value in sorted(launch.environment.items())),
            "ExecStart=" + " \\\n  ".join(" ".join(part) for part in by_flag(command)),
            "Restart=on-failure",
            "RestartSec=15",
            "KillMode=control-group",
            "TimeoutStopSec=60",
            "LimitMEMLOCK=infinity",
            "LimitNOFILE=1048576",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def _k8s(launch: Launch) -> str:
    labels = {"app": launch.name}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{_SHARED_MEMORY_GB}Gi"}}
    ]
    if launch.model.startswith("/"):
        mounts.append({"name": "model", "mountPath": launch.model, "readOnly": True})  # type: ignore[dict-item]
        volumes.append({"name": "model", "hostPath": {"path": launch.model, "type": "Directory"}})
    elif launch.model:
        mounts.append({"name": "hub", "mountPath": _HUB})
        # Downloaded anew by every pod: put a volume claim here to keep it.
        volumes.append({"name": "hub", "emptyDir": {}})
    health = {"path": "/health", "port": PORT}
    container: dict[str, Any] = {
        "name": "sglang",
        "image": _image(launch),
        "command": _arguments(launch)[:3],
        # Kubernetes takes $(NAME) for a variable of its own.
        "args": [word.replace("$(", "$$(") for word in _arguments(launch)[3:]],
        "env": [{"name": name, "value": value.replace("$(", "$$(")} for name, value in _inside(launch).items()],
        "ports": [{"containerPort": PORT}],
        "volumeMounts": mounts,
        "startupProbe": {
            "httpGet": health,
            "periodSeconds": 10,
            "timeoutSeconds": 25,
            "failureThreshold": max(_patience_s(launch) // 10, 1),
        },
        "readinessProbe": {"httpGet": health, "periodSeconds": 30, "timeoutSeconds": 25},
    }
    if launch.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": launch.gpus}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": launch.name, "labels": labels},
        "spec": {
            "replicas": 1,
            # Two engines do not fit on the same GPUs, so the old one goes first.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": volumes}},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": launch.name, "labels": labels},
        "spec": {"selector": labels, "ports": [{"port": PORT, "targetPort": PORT}]},
    }
    return _yaml([*_head(launch), *_about_image(launch)], deployment, service)


def _head(launch: Launch) -> list[str]:
    lines = [f"# {launch.title}"]
    if launch.rehearsal:
        lines.append("# REHEARSAL: found with the stand-in engine; every figure is invented. Do not serve with it.")
    return lines + [f"# {note}" for note in launch.notes]


def _about_image(launch: Launch) -> list[str]:
    lines = [
        "# The image brings its own CUDA, PyTorch and NCCL: measure again if they differ from those above."
        if launch.sglang
        else "# The version of SGLang was not recorded: name the tag yourself."
    ]
    left_out = sorted(set(launch.environment) & _HOST_ONLY)
    if left_out:
        lines.append(f"# Left out, since they belong to the measured host: {', '.join(left_out)}.")
    return lines


def _image(launch: Launch) -> str:
    return f"{_IMAGE}:v{launch.sglang}" if launch.sglang else f"{_IMAGE}:VERSION"


def _volumes(launch: Launch) -> list[str]:
    if launch.model.startswith("/"):
        return [f"{launch.model}:{launch.model}:ro"]
    return [f"huggingface:{_HUB}"] if launch.model else []


def _inside(launch: Launch) -> dict[str, str]:
    """Variables that mean the same in a container."""
    hub = {"HF_HOME": _HUB} if launch.model and not launch.model.startswith("/") else {}
    kept = {name: value for name, value in launch.environment.items() if name not in _HOST_ONLY}
    return dict(sorted((kept | hub).items()))


def _arguments(launch: Launch) -> list[str]:
    """The command line within a container: its own Python, reachable from outside."""
    return ["python3", *_at(launch.command, {"--host": "0.0.0.0"})[1:]]


def _patience_s(launch: Launch) -> int:
    """Five times the measured start (a cold disk is slower), at least ten minutes."""
    return max(600, round(5 * (launch.start_s or 0) / 10) * 10)


def _at(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """A command line with the values of some flags replaced."""
    words = list(command)
    for index, word in enumerate(words[:-1]):
        if word in values:
            words[index + 1] = values[word]
    return words


def by_flag(words: Sequence[str]) -> list[list[str]]:
    """Words in groups, each beginning with its flag."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def _doubled(value: Any, sign: str) -> Any:
    if isinstance(value, dict):
        return {key: _doubled(inner, sign) for key, inner in value.items()}
    if isinstance(value, list):
        return [_doubled(inner, sign) for inner in value]
    return value.replace(sign, sign * 2) if isinstance(value, str) else value


def _yaml(head: Sequence[str], *documents: dict[str, Any]) -> str:
    named = [one for one in documents if "services" in one and any("huggingface:" in v for s in one["services"].values()
                                                                   for v in s["volumes"])]  # fmt: skip
    for one in named:
        one["volumes"] = {"huggingface": {}}
    return "\n".join(head) + "\n" + yaml.safe_dump_all(documents, sort_keys=False, width=200, default_flow_style=False)


def _name(text: str) -> str:
    """Fit for containers, units and Kubernetes: lower case, digits and dashes, at most 63."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower())
    return "-".join(part for part in plain.split("-") if part)[-63:].strip("-") or "quietlane"
