"""The correctness gate of a launch: no figure counts of an engine that answers wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmark.answers import Answers, collect
from benchmark.judgement import Fault, judge, judge_acceptance
from benchmark.results import Measurement
from engine.failure import EngineFailed, Failure
from engine.launch import Engine
from flows.opening import Search

# A rehearsed engine's answers are looked at, but not for long.
_REHEARSED_TOKENS = 16


def speculative_steps(server_info: Mapping[str, Any]) -> int | None:
    """Drafted steps of a running engine as it reports them; ``None`` without speculation or where it does not say."""
    steps = server_info.get("speculative_num_steps")
    return int(steps) if server_info.get("speculative_algorithm") and steps else None


def _refuse(faults: list[Fault], where: str) -> None:
    if faults:
        first = faults[0]
        others = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise EngineFailed(
            Failure(
                None,
                where,
                f"wrong answers: {first.sentence}{others}",
                "configuration",
                "compare the answers in the evidence with the baseline's; another backend or precision may be at fault",
                "\n\n".join(f"{fault.sentence}\n{fault.evidence}" for fault in faults)[:8000],
            )
        )


def check_answers(search: Search, engine: Engine, server_info: Mapping[str, Any], *, is_baseline: bool) -> None:
    """Compare greedy answers with the baseline's, and keep the baseline's. Raises EngineFailed for wrong ones."""
    tokens = _REHEARSED_TOKENS if search.rehearsal else search.space.benchmark.answer_tokens
    answers = collect(engine.url, plan=search.plan, check=engine.check, output_tokens=tokens)
    reference = None if is_baseline else remembered(search)
    _refuse(judge(reference, answers, speculative_steps(server_info)), "answers")
    if is_baseline:
        search.reference = answers
        search.reference_path.write_text(answers.as_json())


def check_acceptance(measurement: Measurement, server_info: Mapping[str, Any]) -> None:
    """Refuse acceptance lengths that cannot be true, or that say that the draft is dead. Raises EngineFailed."""
    lengths = [(sample.acceptance_length, sample.output_tokens) for sample in measurement.samples if not sample.error]
    _refuse(judge_acceptance(lengths, speculative_steps(server_info)), "serving")


def remembered(search: Search) -> Answers | None:
    """The baseline's answers, of this run or of the one that this study began with."""
    if search.reference is None and search.reference_path.exists():
        search.reference = Answers.from_json(search.reference_path.read_text())
    return search.reference
