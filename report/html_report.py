"""The morning report as one HTML page that loads nothing, prints well, and can be heard."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

from report.charts import history_chart, hours_chart, levels_chart, share_bar
from report.hours import PARTS
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

# More rows than this are left to the database, so that the page stays small.
_MOST_ROWS = 500


def as_html(report: Morning) -> str:
    """The whole page."""
    templates = files("report") / "templates"
    page = Template((templates / "report.html").read_text(encoding="utf-8"))
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.facts)
    return page.substitute(
        title=escape(report.title),
        css=(templates / "report.css").read_text(encoding="utf-8").strip(),
        banner=f'<p class="banner" role="alert">{escape(REHEARSAL_SENTENCE)}</p>' if report.record.rehearsal else "",
        study=escape(report.record.name),
        facts=f'<dl class="facts">{facts}</dl>',
        sections="\n".join(filter(None, (
            _verdict(report), _levels(report), _history(report), _effects(report), _failures(report), _hours(report),
            _trust(report), _next(report), _all_trials(report),
        ))),
        written=report.written_at.strftime("%Y-%m-%d %H:%M %Z"),
    )  # fmt: skip


def _section(name: str, heading: str, *parts: str) -> str:
    body = "\n".join(part for part in parts if part)
    title = f'<h2 id="h-{name}">{escape(heading)}</h2>'
    return f'<section id="{name}" aria-labelledby="h-{name}">\n{title}\n{body}\n</section>'


def _verdict(report: Morning) -> str:
    parts = []
    if report.confirmed:
        parts.append(f'<p class="verdict">{escape(report.confirmed)}</p>')
        parts.append(f'<p class="note">Confirmed by repeated launches. From the search: {escape(report.verdict)}</p>')
    else:
        parts.append(f'<p class="verdict">{escape(report.verdict)}</p>')
    gravest = [one for one in report.trust if one.weight == "caution"]
    if gravest:
        parts.append(f'<p><span class="tag caution">Before you rely on it:</span> {escape(gravest[0].sentence)} '
                     '<a href="#trust">How far the figures can be trusted</a></p>')  # fmt: skip
    if report.command:
        parts.append("<h3>Launch command</h3>")
        parts.append(f'<pre id="command" tabindex="0" aria-label="launch command">{escape(report.command)}</pre>')
        parts.append('<p><button type="button" data-copies="command" hidden>Copy the command</button> '
                     '<span class="said note" role="status"></span></p>')  # fmt: skip
    return _section("verdict", "Verdict", *parts)


def _levels(report: Morning) -> str:
    table = level_table(report)
    if table is None:
        return ""
    if report.challenger is None:
        heading, note = "The baseline at every level", ""
    elif report.baseline_wins:
        heading = "The baseline against its closest rival"
        note = f"Trial {report.challenger.number} ({report.challenger.facts.label})" + (
            " was stopped early, at the level where it could no longer win."
            if report.challenger.facts.stopped_early
            else " came closest."
        )
    else:
        heading = "Baseline against winner at every level"
        note = f"Trial {report.challenger.number}: {report.challenger.facts.label}."
    return _section(
        "levels",
        heading,
        f"<p>{escape(note)}</p>" if note else "",
        levels_chart(report.levels),
        _table(table),
    )


def _history(report: Morning) -> str:
    chart = history_chart(report.history)
    if not chart:
        return ""
    note = (
        "Each dot is a trial, the stepped line the best so far, the dashed line the baseline. A triangle is the upper "
        "bound at which a trial was stopped early; a cross below is a trial that failed."
    )
    return _section("history", "History of the search", chart, f'<p class="note">{note}</p>')


def _effects(report: Morning) -> str:
    table = effects_table(report)
    if table is None:
        return ""
    note = (
        "Estimated from all measured trials as factors that multiply, without interactions; settings that were only "
        "ever changed together share a line. With few trials this is a hint, not a proof."
    )
    return _section("effects", "What mattered most", _table(table), f'<p class="note">{note}</p>')


def _failures(report: Morning) -> str:
    table = failures_table(report)
    if table is None:
        return _section("failures", "What failed and why", "<p>Nothing failed.</p>")
    return _section("failures", "What failed and why", _table(table))


def _hours(report: Morning) -> str:
    table = hours_table(report)
    if table is None:
        return ""
    sentence = hours_sentence(report)
    return _section(
        "hours",
        "How the hours were spent",
        share_bar(report.hours),
        _table(table, keys=True),
        f"<p>{escape(sentence)}</p>" if sentence else "",
        hours_chart(report.hours),
    )


def _trust(report: Morning) -> str:
    words = {"caution": "Caution.", "note": "Note.", "good": "Good."}
    items = "".join(
        f'<li><span class="tag {one.weight}">{words[one.weight]}</span> {escape(one.sentence)}</li>'
        for one in report.trust
    )
    return _section("trust", "How far the figures can be trusted", f'<ul class="plain">{items}</ul>')


def _next(report: Morning) -> str:
    if not report.next_steps:
        return ""
    items = "".join(f"<li>{escape(one)}</li>" for one in report.next_steps)
    return _section("next", "What to try next", f'<ul class="plain">{items}</ul>')


def _all_trials(report: Morning) -> str:
    table = leaderboard_table(report, _MOST_ROWS)
    count = len(report.record.standings)
    left_out = f" The best {_MOST_ROWS} are shown." if count > _MOST_ROWS else ""
    summary = f"<summary>All {count} trials, the best first</summary>"
    note = f'<p class="note">{left_out.strip()}</p>' if left_out else ""
    return _section(
        "trials", "Leaderboard", f"<details{' open' if count <= 30 else ''}>{summary}{_table(table)}{note}</details>"
    )


def _key(part: str) -> str:
    """A small square in the colour of a part of the hours."""
    square = f'<rect class="p-{part}" width="10" height="10"/>'
    return f'<svg class="key" aria-hidden="true" viewBox="0 0 10 10">{square}</svg>'


def _table(table: Table, *, keys: bool = False) -> str:
    """A table with headings that a screen reader can name; ``keys`` puts the colour of a part before its name."""

    def cell(column: int, text: str) -> str:
        shown = f"<strong>{escape(text[2:-2])}</strong>" if text.startswith("**") else escape(text)
        if column == 0:
            key = _key(text) if keys and text in PARTS else ""
            return f'<th scope="row" class="text">{key}{shown}</th>'
        wide = column in table.text_columns and len(text) > 24
        name = "wide" if wide else "text" if column in table.text_columns else ""
        return f'<td class="{name}">{shown}</td>' if name else f"<td>{shown}</td>"

    head = "".join(
        f'<th scope="col"{" class=text" if column in table.text_columns or not column else ""}>{escape(name)}</th>'
        for column, name in enumerate(table.columns)
    )
    body = "\n".join(
        f"<tr{' class=marked' if index in table.marked else ''}>" + "".join(map(cell, range(len(row)), row)) + "</tr>"
        for index, row in enumerate(table.rows)
    )
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.caption or table.columns[0])}">'
        f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def as_picture(svg: str) -> str:
    """A chart of `report.charts` as a file of its own, with the page's colours."""
    css = (files("report") / "templates" / "report.css").read_text(encoding="utf-8")
    background = '<rect width="100%" height="100%" style="fill: var(--page)"/>'
    start, _, rest = svg.partition(">")
    opened = start.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" ', 1)
    return f"{opened}><style>{escape(css, quote=False)}</style>{background}{rest}"
