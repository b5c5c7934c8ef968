"""What a search may still spend: launches, hours, or the time until a person wants the machine back. Pure."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_DEADLINE = re.compile(
    r"(?:(?P<date>\d{4}-\d{2}-\d{2})[ T])?(?P<hour>\d{1,2}):(?P<minute>\d{2})"
    r"\s*(?P<zone>Z|[+-]\d{2}:?\d{2}|[A-Za-z][A-Za-z0-9_+/-]*)?"
)
# Confirming takes at most this share of the time that a search was given.
_MOST_KEPT_BACK = 1 / 3


def deadline(text: str, now: datetime | None = None) -> datetime:
    """The moment that ``07:30``, ``07:30 Europe/Berlin`` or ``2026-12-01 07:30+01:00`` means, with its timezone.

    A time without a date is its next occurrence; without a timezone it is the machine's own. A time that the clocks
    skip in spring is the moment as far after the gap; one that they repeat in autumn is the first of both.
    Raises ValueError with one sentence for what cannot be read, and for a moment that has passed.
    """
    found = _DEADLINE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no deadline: write 07:30, 07:30 Europe/Berlin or 2026-12-01 07:30 Europe/Berlin")
    here = datetime.now().astimezone() if now is None else now
    zone = _zone(found["zone"], here)
    try:
        day = datetime.fromisoformat(found["date"]) if found["date"] else here.astimezone(zone)
        moment = datetime(day.year, day.month, day.day, int(found["hour"]), int(found["minute"]), tzinfo=zone)
    except ValueError as error:
        raise ValueError(f"{text!r} is no deadline: {error}") from None
    moment = moment if zone is not None else moment.astimezone()
    if moment.timestamp() <= here.timestamp():
        if found["date"]:
            raise ValueError(f"the deadline {text} has passed: it is {here.astimezone(zone):%Y-%m-%d %H:%M}")
        next_day = moment.replace(tzinfo=None) + timedelta(days=1)
        moment = next_day.replace(tzinfo=zone) if zone is not None else next_day.astimezone()
    return moment


def _zone(name: str | None, now: datetime) -> tzinfo | None:
    """The timezone of a name or an offset; ``None`` is the machine's own."""
    if name is None:
        return None
    if name == "Z" or name[0] in "+-":
        return datetime.fromisoformat(f"2000-01-01T00:00{name}").tzinfo
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is no timezone: write one such as Europe/Berlin, UTC or +01:00") from None


@dataclass
class LaunchTimes:
    """How long launches took, from start to teardown, in seconds; by the configuration's identity."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, identity: str, seconds: float) -> None:
        """Take note of one launch."""
        self.seconds.setdefault(identity, []).append(seconds)

    def expected(self, identity: str | None = None) -> float:
        """Seconds that the next launch may well take: the longest of this configuration, if it was launched before,
        else a time that nine in ten launches kept. 0 before any launch."""
        own = self.seconds.get(identity or "")
        if own:
            return max(own)
        everything = sorted(second for seconds in self.seconds.values() for second in seconds)
        return everything[math.ceil(0.9 * len(everything)) - 1] if everything else 0.0

    def typical(self) -> float:
        """Median seconds of a launch; 0 before any."""
        everything = [second for seconds in self.seconds.values() for second in seconds]
        return statistics.median(everything) if everything else 0.0


@dataclass(frozen=True)
class Budget:
    """Attributes:
    launches: most launches or trials, ``None`` without a limit.
    began, ends: Unix seconds; ``ends`` is ``None`` without a limit.
    keep_back: launches that `confirm` will need after the search.
    """

    launches: int | None = None
    began: float = 0.0
    ends: float | None = None
    keep_back: int = 0

    def kept_back_s(self, times: LaunchTimes) -> float:
        """Seconds that are left to `confirm`: what its first rounds take, at most a third of the whole."""
        if self.ends is None or not self.keep_back:
            return 0.0
        return min(self.keep_back * times.typical(), (self.ends - self.began) * _MOST_KEPT_BACK)

    def spent(self, done: int, now: float, times: LaunchTimes, identity: str | None = None) -> str | None:
        """Why no further launch may start, in a sentence; ``None`` where one may."""
        if self.launches is not None and done >= self.launches:
            return f"all {self.launches} launches of the budget are used"
        if self.ends is None:
            return None
        kept, expected = self.kept_back_s(times), times.expected(identity)
        left = self.ends - kept - now
        if left > 0 and expected < left:
            return None
        text = f"{_minutes(max(left, 0.0))} are left and a launch takes {_minutes(expected)}"
        return text + (f" ({_minutes(kept)} are kept back for confirming)" if kept else "")

    def launches_left(self, done: int, now: float, times: LaunchTimes) -> int | None:
        """Launches that still fit, ``None`` where nothing limits them."""
        by_number = None if self.launches is None else max(self.launches - done, 0)
        typical = times.typical()
        if self.ends is None or not typical:
            return by_number
        by_time = max(int((self.ends - self.kept_back_s(times) - now) / typical), 0)
        return by_time if by_number is None else min(by_time, by_number)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def improbable_gain(
    scores: Sequence[float | None],
    launches_left: int | None,
    *,
    worthwhile: float = 0.01,
    chance: float = 0.1,
    at_least: int = 20,
) -> str | None:
    """Why a search may end before its budget does, in a sentence; ``None`` while a further gain is probable enough.

    ``scores`` are those of the trials that the sampler chose, in their order, ``None`` for those that do not work. Each
    trial since the last worthwhile gain is a try without success. With Jeffreys' prior for the unknown chance of
    success, the chance that one of m further tries succeeds after n failures is ``1 - B(1/2, n+m+1/2) / B(1/2, n+1/2)``
    (the rule of succession, H. Jeffreys, "Theory of Probability", 3.10). A sampler that has learnt finds gains ever
    more rarely, so the true chance is smaller. Never before ``at_least`` tries without success.
    """
    best, last = 0.0, -1
    for place, score in enumerate(scores):
        if score is not None and score > best * (1 + worthwhile):
            best, last = score, place
    without = len(scores) - 1 - last
    if without < at_least or launches_left is None or launches_left < 1 or last < 0:
        return None
    log_none = _log_beta_half(without + launches_left) - _log_beta_half(without)
    probability = -math.expm1(log_none)
    if probability > chance:
        return None
    return (
        f"the last {without} trials brought no gain of {worthwhile:.0%} or more, and the {launches_left} left would "
        f"bring one with a probability of {probability:.0%} at most"
    )


def _log_beta_half(failures: float) -> float:
    """Logarithm of B(1/2, failures + 1/2)."""
    return math.lgamma(0.5) + math.lgamma(failures + 0.5) - math.lgamma(failures + 1.0)


def launch_times(launches: Sequence[tuple[str, float, float | None]]) -> LaunchTimes:
    """Times of past launches from (identity, start, end); those that have not ended count for nothing."""
    times = LaunchTimes()
    for identity, started, ended in launches:
        if ended is not None and ended > started:
            times.add(identity, ended - started)
    return times
