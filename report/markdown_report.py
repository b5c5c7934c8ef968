"""The morning report as Markdown, for mail, chat and Prefect: the same words and figures, without the pictures."""

from __future__ import annotations

from report.morning import REHEARSAL_SENTENCE, Morning
from report.morning_tables import (
    Table,
    effects_table,
    failures_table,
    hours_sentence,
    hours_table,
    leaderboard_table,
    level_table,
)

_MOST_ROWS = 100


def as_markdown(report: Morning) -> str:
    """The whole text."""
    lines = [f"# {report.title}", ""]
    if report.record.rehearsal:
        lines += [f"> **{REHEARSAL_SENTENCE}**", ""]
    lines += ["## Verdict", "", f"**{report.confirmed or report.verdict}**", ""]
    if report.confirmed:
        lines += [f"Confirmed by repeated launches. From the search: {report.verdict}", ""]
    if report.command:
        lines += ["```sh", report.command.rstrip(), "```", ""]
    name = f" (trial {report.challenger.number}: {report.challenger.facts.label})" if report.challenger else ""
    heading = "The baseline against its closest rival" if report.baseline_wins else "Baseline against winner"
    count = len(report.record.standings)
    sections: list[tuple[str, Table | None, str]] = [
        (heading + name if name else "The baseline", level_table(report), ""),
        (
            "What mattered most",
            effects_table(report),
            "Estimated from all measured trials as factors that multiply, without interactions.",
        ),
        ("What failed and why", failures_table(report), "" if report.failures else "Nothing failed."),
        ("How the hours were spent", hours_table(report), hours_sentence(report)),
    ]
    for title, table, after in sections:
        if table is None and not after:
            continue
        lines += [f"## {title}", "", *(_table(table) if table else []), *([after, ""] if after else [])]
    lines += ["## How far the figures can be trusted", ""]
    lines += [f"- {one.weight.capitalize()}: {one.sentence}" for one in report.trust]
    if report.next_steps:
        lines += ["", "## What to try next", "", *(f"- {one}" for one in report.next_steps)]
    lines += ["", "## Leaderboard", "", *_table(leaderboard_table(report, _MOST_ROWS))]
    if count > _MOST_ROWS:
        lines += [f"The best {_MOST_ROWS} of {count}.", ""]
    lines += ["## The study", "", *(f"- {title}: {value}" for title, value in report.facts), ""]
    lines += [f"Written {report.written_at:%Y-%m-%d %H:%M %Z} by quietlane.", ""]
    return "\n".join(lines)


def _table(table: Table) -> list[str]:
    def line(texts: tuple[str, ...]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"

    sides = tuple("---" if column in table.text_columns else "---:" for column in range(len(table.columns)))
    lines = [line(table.columns), line(sides), *map(line, table.rows), ""]
    return lines + ([table.caption, ""] if table.caption else [])
