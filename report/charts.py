"""Small charts as inline SVG: no library, no script, colours by class so that they follow the page's light or dark.

Each has a title and a description for screen readers; the page carries the same figures in a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from report.hours import PARTS, Hours
from report.level_figures import LevelPair
from report.morning import Point

_WIDTH = 720


def history_chart(points: Sequence[Point]) -> str:
    """Scores in the order of the trials, the baseline as a line; what failed is marked below and stretches no axis."""
    scored = [point for point in points if point.score is not None]
    if not scored:
        return ""
    left, top, height, bottom = 52, 16, 190, 64
    low, high = _range([1.0, *(point.score or 1.0 for point in scored)])
    last = max(point.number for point in points)
    radius = 4.0 if last < 80 else 2.5
    step = (_WIDTH - left - 96) / max(last, 1)

    def x(number: int) -> float:
        return left + 8 + step * number

    def y(score: float) -> float:
        return top + height * (1 - (score - low) / (high - low))

    parts = []
    for tick in _ticks(low, high):
        parts.append(_line(left, y(tick), _WIDTH - 80, y(tick), "grid"))
        parts.append(_text(left - 6, y(tick) + 4, f"{tick:.2f}", "end"))
    parts.append(_line(left, y(1.0), _WIDTH - 80, y(1.0), "baseline"))
    parts.append(_text(_WIDTH - 74, y(1.0) + 4, "baseline", "start"))
    best, path = 0.0, ""
    for point in scored:
        if point.kind in ("baseline", "measured") and (point.score or 0) > best:
            best = point.score or 0
            path += f"H{x(point.number):.1f}V{y(best):.1f}" if path else f"M{x(point.number):.1f} {y(best):.1f}"
    if path:
        parts.append(f'<path class="best" d="{path}H{x(last):.1f}"/>')
    rug = top + height + 18
    for point in points:
        place = x(point.number)
        if point.score is None:
            d = f"M{place - 3.5:.1f} {rug - 3.5:.1f}l7 7m0 -7l-7 7"
            mark = f'<path class="failed" d="{d}">'
            end = "</path>"
        elif point.kind == "stopped early":
            d = f"M{place - 4:.1f} {y(point.score) - 3:.1f}h8l-4 7z"
            mark, end = f'<path class="bound" d="{d}">', "</path>"
        else:
            name = "point same" if point.kind == "same as another" else "point"
            mark, end = f'<circle class="{name}" cx="{place:.1f}" cy="{y(point.score):.1f}" r="{radius}">', "</circle>"
        bound = "at most " if point.kind == "stopped early" else ""
        score = "no score" if point.score is None else f"{bound}{point.score:.3f}"
        tip = escape(f"trial {point.number}, {point.label}: {score} ({point.kind})")
        parts.append(f"{mark}<title>{tip}</title>{end}")
    for number in _numbers(last):
        parts.append(_text(x(number), top + height + 40, str(number), "middle"))
    parts.append(_text((left + _WIDTH - 80) / 2, top + height + 57, "trial", "middle"))
    if any(point.score is None for point in points):
        parts.append(_text(_WIDTH - 74, rug + 4, "failed", "start"))
    text = (
        f"{len(points)} trials; the best score is {max(point.score or 0 for point in scored):.3f} of the baseline; "
        f"{sum(point.score is None for point in points)} failed."
    )
    return _svg(top + height + bottom, "History of the search", text, parts)


def levels_chart(levels: Sequence[LevelPair]) -> str:
    """The change of throughput at each level in percent, with its interval; the baseline is the line at 0."""
    shown = [(pair.level, pair.interval) for pair in levels if pair.interval is not None]
    if not shown:
        return ""
    left, top, row = 110, 14, 34
    ends = [0.0]
    for _, interval in shown:
        # An interval from a few seconds can be absurdly wide: it is cut at the edge of the chart.
        ends += [100 * (one - 1) for one in (interval.low, interval.mid, interval.high) if one is not None]
    middles = [100 * (interval.mid - 1) for _, interval in shown]
    reach = max(10.0, 2.5 * max(abs(one) for one in middles))
    low, high = _range([max(min(ends), min(*middles, 0.0) - reach), min(max(ends), max(*middles, 0.0) + reach)])
    low = max(low, -100.0)

    def x(percent: float) -> float:
        return left + (_WIDTH - left - 30) * (min(max(percent, low), high) - low) / (high - low)

    bottom = top + row * len(shown)
    parts = []
    for tick in _ticks(low, high):
        parts.append(_line(x(tick), top, x(tick), bottom, "grid"))
        parts.append(_text(x(tick), bottom + 18, f"{tick:+.0f} %" if tick else "baseline", "middle"))
    parts.append(_line(x(0), top, x(0), bottom, "baseline"))
    for index, (level, interval) in enumerate(shown):
        y = top + row * (index + 0.5)
        middle = 100 * (interval.mid - 1)
        parts.append(_text(left - 14, y + 4, level, "end"))
        if interval.low is not None and interval.high is not None:
            ends_at = [100 * (one - 1) for one in (interval.low, interval.high)]
            parts.append(_line(x(ends_at[0]), y, x(ends_at[1]), y, "interval"))
            for end in ends_at:
                if low <= end <= high:
                    parts.append(_line(x(end), y - 6, x(end), y + 6, "interval"))
        tip = escape(f"{level}: {interval.sentence()}")
        parts.append(f'<circle class="point" cx="{x(middle):.1f}" cy="{y:.1f}" r="5"><title>{tip}</title></circle>')
    text = "; ".join(f"{level}: {interval.sentence()}" for level, interval in shown)
    return _svg(bottom + 30, "Output throughput against the baseline at each level", text, parts)


def hours_chart(spent: Hours) -> str:
    """Every launch as a column, its parts stacked in the order of time."""
    launches = [one for one in spent.launches if one.total_s > 0]
    if not launches:
        return ""
    left, top, height = 52, 14, 170
    longest = max(one.total_s for one in launches)
    unit, name = (1.0, "s") if longest < 180 else (60.0, "min")
    high = _range([0.0, longest / unit])[1]
    step = (_WIDTH - left - 16) / len(launches)
    thick = min(step * 0.8, 46.0)
    parts = []
    for tick in _ticks(0.0, high):
        y = top + height * (1 - tick / high)
        parts.append(_line(left, y, _WIDTH - 16, y, "grid"))
        parts.append(_text(left - 6, y + 4, f"{tick:g} {name}", "end"))
    every = max(1, math.ceil(len(launches) / 20))
    for index, one in enumerate(launches):
        place, y = left + step * (index + 0.5) - thick / 2, float(top + height)
        for part in PARTS:
            tall = height * one.seconds[part] / unit / high
            if tall >= 0.15:
                y -= tall
                parts.append(
                    f'<rect class="p-{part}" x="{place:.1f}" y="{y:.1f}" width="{thick:.1f}" height="{tall:.1f}"/>'
                )
        if index % every == 0:
            label = "-" if one.trial_number is None else str(one.trial_number)
            parts.append(_text(place + thick / 2, top + height + 17, label, "middle"))
    parts.append(_text((left + _WIDTH - 16) / 2, top + height + 36, "launches, by trial", "middle"))
    text = f"{len(launches)} launches, the longest {longest:.0f} seconds; the table gives the sum of each part."
    return _svg(top + height + 44, "How each launch's time was spent", text, parts)


def share_bar(spent: Hours) -> str:
    """All parts of the whole time in one bar."""
    if spent.total_s <= 0:
        return ""
    x, parts = 0.0, []
    for part in PARTS:
        wide = _WIDTH * spent.seconds[part] / spent.total_s
        parts.append(f'<rect class="p-{part}" x="{x:.1f}" y="0" width="{wide:.1f}" height="22"/>')
        x += wide
    text = ", ".join(f"{part} {100 * spent.seconds[part] / spent.total_s:.0f} %" for part in PARTS)
    return _svg(22, "Share of each part in the whole time", text, parts)


def _svg(height: float, title: str, text: str, parts: Sequence[str]) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {_WIDTH} {height:.0f}" aria-label="{escape(f"{title}. {text}")}">'
        + "".join(parts)
        + "</svg>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _range(values: Sequence[float]) -> tuple[float, float]:
    """From below the least to above the greatest, with some air; 0 stays an end."""
    low, high = min(values), max(values)
    air = (high - low or abs(high) or 1.0) * 0.08
    return (low if low == 0 else low - air), (high if high == 0 else high + air)


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between both."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(step * index, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _numbers(last: int) -> list[int]:
    """Which trials are numbered on an axis."""
    step = next(one for one in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**6) if last / one <= 12)
    return list(range(0, last + 1, step))
