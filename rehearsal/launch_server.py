"""``python -m rehearsal.launch_server <SGLang's flags>``: start the rehearsal engine."""

from __future__ import annotations

import os
import shlex
import sys
import time

from rehearsal import arguments, faults, memory, resolution, settings
from rehearsal.endings import leave_behind, parent_exception
from rehearsal.log_lines import raw, say, stamp
from rehearsal.ranks import Ranks, places

PROGRAM = "sglang serve"


def directions(chosen: settings.Settings) -> str:
    """The stage directions, in words, for the first line of the log."""
    seed = "noise drawn anew" if chosen.seed is None else f"seed {chosen.seed}"
    fault = f" Faults asked for: {chosen.fault}." if chosen.fault.strip() else ""
    return f"Speed of the start {chosen.speed:g}, serving {chosen.time_scale:g} times as fast as life, {seed}.{fault}"


def _arguments_line(version: str, args: dict[str, object]) -> str:
    if version == "0.5.17":
        return ", ".join(f"{name}={value!r}" for name, value in args.items())
    return repr(args)


def main(argv: list[str]) -> int:
    """Run until told to stop; the exit status is SGLang's: 0, 1 for a rejection, 2 for a wrong command line."""
    began = time.monotonic()
    try:
        chosen = settings.read()
        flags = arguments.load_flags(chosen.version)
        asked = arguments.parse(argv, flags)
    except settings.SettingsError as error:
        raw(f"rehearsal: {error}\n")
        return 2
    except arguments.HelpAsked:
        names = "\n".join(f"  {name}" for name in sorted(flags))
        sys.stdout.write(
            f"usage: {PROGRAM} --model-path MODEL_PATH [flags]\n\nREHEARSAL: flags of {chosen.version}:\n{names}\n"
        )
        return 0
    except arguments.UsageError as error:
        raw(f"usage: {PROGRAM} [-h] --model-path MODEL_PATH [flags]\n{PROGRAM}: error: {error}\n")
        return 2
    say(chosen.version, "rehearsal", version=chosen.version, directions=directions(chosen))
    try:
        args, remarks = resolution.resolve(asked, chosen, os.environ)
    except resolution.Rejected as no:
        parent_exception(no.kind, no.text, no.file, no.line, no.function)
        return 1
    for remark in remarks:
        raw(f"{stamp()} {remark}\n")
    planned = memory.plan(args, chosen)
    ranks = len(places(args))
    try:
        wanted = faults.parse(chosen.fault, ranks)
    except faults.FaultError as error:
        raw(f"rehearsal: {error}\n")
        return 2
    wanted += faults.of_configuration(args, dict(os.environ), planned, chosen, ranks)
    say(chosen.version, "arguments", arguments=_arguments_line(chosen.version, args))
    if any(fault.kind == "orphan" for fault in wanted):
        leave_behind(chosen.leftover_s)
    command = shlex.join([sys.executable, "-m", "rehearsal.launch_server", *argv])
    with Ranks(args, planned, chosen, wanted) as crew:
        # Loaded while the ranks work: asyncio is the slowest part of a start at speed 0. It does without TLS.
        sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
        from rehearsal.serving import serve  # noqa: PLC0415

        crew.start()
        return serve(crew, command, began)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
