"""The phases of every rank, from the events of a log."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.log_rules import Event
from engine.phase import Phase

_POOL, _WEIGHTS, _DRAFT_WEIGHTS, _INIT = "mamba and KV cache", "weights", "draft weights", "distributed init"
_PARENT = "main"
_ONLY = "TP0"  # the name of the one rank of an engine that prints no rank


def _rounded(gigabytes: float) -> float:
    return round(gigabytes, 2)


@dataclass
class _Stretch:
    """A phase in the making. A phase may consist of several stretches: target and draft pools, several draft layers."""

    name: str
    started_at: float | None
    since: float | None
    elapsed_s: float | None = None
    earlier_s: float = 0.0
    used_gb: float | None = None
    left_gb: float | None = None
    progress: float | None = None
    done: bool = False

    def reopen(self, at: float | None) -> None:
        self.earlier_s = self.elapsed_s or 0.0
        self.since, self.done = at, False

    def close(self, at: float | None, elapsed_s: float | None = None) -> None:
        if elapsed_s is None and at is not None and self.since is not None:
            elapsed_s = max(at - self.since, 0.0)
        if elapsed_s is not None:
            self.elapsed_s = round(self.earlier_s + elapsed_s, 3)
        if self.progress is not None:
            self.progress = 1.0
        self.done = True

    def add_used(self, gigabytes: float) -> None:
        self.used_gb = _rounded((self.used_gb or 0.0) + gigabytes)

    def frozen(self, rank: str) -> Phase:
        return Phase(
            rank, self.name, self.started_at, self.elapsed_s, self.used_gb, self.left_gb, self.progress, self.done
        )


@dataclass
class _Rank:
    name: str
    stretches: dict[str, _Stretch] = field(default_factory=dict)
    left_gb: float | None = None  # GPU memory left, as last reported
    ended_at: float | None = None  # when the last phase ended
    nested: int = 0  # weight loads begun and not ended: more than one where ranks share an unmarked log

    def begin(self, name: str, at: float | None) -> _Stretch:
        for other in self.stretches.values():
            if not other.done and other.name != name:
                self.end(other, at)
        stretch = self.stretches.get(name)
        if stretch is None:
            stretch = self.stretches[name] = _Stretch(name, at, at)
        elif stretch.done:
            stretch.reopen(at)
        return stretch

    def end(self, stretch: _Stretch, at: float | None, elapsed_s: float | None = None) -> None:
        stretch.close(at, elapsed_s)
        if at is not None:
            self.ended_at = at

    def report_left(self, stretch: _Stretch, left_gb: float | None, used_gb: float | None) -> None:
        """Memory as a phase ends: what it says it used, else what is missing since the last report."""
        if used_gb is not None:
            stretch.add_used(used_gb)
        elif left_gb is not None and self.left_gb is not None:
            stretch.add_used(self.left_gb - left_gb)
        if left_gb is not None:
            stretch.left_gb = self.left_gb = left_gb


class PhaseBook:
    """Turns events into phases.

    A rank is named by its prefix as printed. A log that prints none is that of a single rank, named ``TP0``. What only
    the parent says (warm-up, ready) is a phase of every rank, for all of them wait for it; ``main`` stands for the
    parent as long as no rank has spoken. Memory left after the distributed init is what the rank reports as its
    weights begin.
    """

    def __init__(self, started_at: float | None = None) -> None:
        self.first_at = started_at
        self.ready = False
        self.speculative = True  # until the arguments say otherwise
        self._ranks: dict[str, _Rank] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The ranks that have spoken, in the order of their numbers."""
        return tuple(sorted(self._ranks, key=_numbers))

    def phases(self) -> tuple[Phase, ...]:
        """Every phase begun, rank by rank, in the order of their beginnings."""
        if not self._ranks:
            return (Phase(_PARENT, "imports", self.first_at),)
        return tuple(stretch.frozen(name) for name in self.names for stretch in self._ranks[name].stretches.values())

    def rank_named(self, prefix: str | None) -> str:
        """The rank that prints this prefix; without one: the only rank, or the parent where there are several."""
        if prefix is not None:
            return prefix
        return _PARENT if any(name != _ONLY for name in self._ranks) or not self._ranks else _ONLY

    def open_phase(self, rank: str) -> str | None:
        """The phase that this rank is in, ``None`` between phases."""
        entry = self._ranks.get(rank)
        running = [stretch.name for stretch in entry.stretches.values() if not stretch.done] if entry else []
        return running[-1] if running else None

    def last_phase(self, rank: str) -> str | None:
        """The phase that this rank began last."""
        entry = self._ranks.get(rank)
        return next(reversed(entry.stretches), None) if entry else None

    def has(self, rank: str, phase: str) -> bool:
        """This rank has been through this phase."""
        entry = self._ranks.get(rank)
        return entry is not None and phase in entry.stretches and entry.stretches[phase].done

    def apply(self, event: Event, prefix: str | None, at: float | None) -> None:
        """Takes one event of the rank that prints this prefix."""
        if event.name in ("warm-up", "ready"):
            self._parent(event.name, at)
        elif event.name in ("shards", "batches"):
            self._bar(event)
        elif event.name != "arguments":
            self._of_rank(event, self._rank(prefix or _ONLY), at)

    def _rank(self, name: str) -> _Rank:
        rank = self._ranks.get(name)
        if rank is None:
            rank = self._ranks[name] = _Rank(name)
            if self.first_at is not None:
                rank.begin("imports", self.first_at)
        return rank

    def _parent(self, name: str, at: float | None) -> None:
        if self.ready:
            return
        for rank in list(self._ranks.values()) or [self._rank(_PARENT)]:
            if name == "warm-up":
                if "warm-up" not in rank.stretches:
                    rank.begin("warm-up", at)
                continue
            ready = rank.begin("ready", at)
            ready.left_gb = rank.left_gb
            ready.close(at, 0.0)
        self.ready = name == "ready"

    def _of_rank(self, event: Event, rank: _Rank, at: float | None) -> None:
        if event.name == "begin":
            self._begin(event, rank, at)
        elif event.name == "end":
            self._end(event, rank, at)
        elif event.name == "pool":
            if self._is_done(rank, _POOL) or _POOL not in rank.stretches:
                # SGLang says so once the memory is there, so the work began when the phase before it ended
                stretch = rank.begin(_POOL, at)
                stretch.since = rank.ended_at if rank.ended_at is not None else at
                if stretch.elapsed_s is None:
                    stretch.started_at = stretch.since
        elif event.name == "pool end":
            stretch = rank.begin(_POOL, at) if _POOL not in rank.stretches else rank.stretches[_POOL]
            rank.report_left(stretch, event.number("left"), None)
            if not stretch.done:
                rank.end(stretch, at)
        elif event.name == "memory":
            stretch = rank.stretches.get(_INIT) or rank.begin(_INIT, at)
            if stretch.used_gb is None:
                stretch.used_gb = event.number("used")
        elif event.name == "left":
            rank.left_gb = event.number("left")

    def _is_done(self, rank: _Rank, name: str) -> bool:
        return name in rank.stretches and rank.stretches[name].done

    def _begin(self, event: Event, rank: _Rank, at: float | None) -> None:
        name = event.phase
        left = event.number("left")
        if name == _INIT:
            if _WEIGHTS not in rank.stretches and not self._is_done(rank, _INIT):
                rank.begin(_INIT, at)  # the draft's worker says it again, with nothing left to do
            return
        if name == _WEIGHTS:
            init = rank.stretches.get(_INIT)
            if init is not None and init.left_gb is None:
                init.left_gb = left
            if self.speculative and self._is_done(rank, _WEIGHTS):
                name = _DRAFT_WEIGHTS
            rank.nested += 1
        rank.begin(name, at)
        if left is not None:
            rank.left_gb = left

    def _end(self, event: Event, rank: _Rank, at: float | None) -> None:
        name, elapsed_s = event.phase, event.number("elapsed")
        if name == _INIT and (_WEIGHTS in rank.stretches or self._is_done(rank, _INIT)):
            return
        if name == _WEIGHTS:
            if _DRAFT_WEIGHTS in rank.stretches:
                name = _DRAFT_WEIGHTS
            rank.nested = max(rank.nested - 1, 0)
            if rank.nested and name in rank.stretches:
                return
        stretch = rank.stretches.get(name)
        if stretch is None:
            began = at - elapsed_s if at is not None and elapsed_s is not None else at
            stretch = rank.begin(name, began)
        rank.report_left(stretch, event.number("left"), event.number("used"))
        rank.end(stretch, at, elapsed_s)

    def _bar(self, event: Event) -> None:
        done, whole = event.number("done"), event.number("all")
        if done is None or not whole:
            return
        # only the first rank of each tensor-parallel group draws bars, and draws them without its name
        for name, rank in self._ranks.items():
            if "TP" in name and not any(part == "TP0" for part in name.split()):
                continue
            for stretch in rank.stretches.values():
                weights = stretch.name in (_WEIGHTS, _DRAFT_WEIGHTS)
                if not stretch.done and weights == (event.name == "shards") and stretch.name != "imports":
                    stretch.progress = min(done / whole, 1.0)


def _numbers(name: str) -> tuple[tuple[str, int], ...]:
    parts = []
    for part in name.split():
        letters = part.rstrip("0123456789")
        parts.append((letters, int(part[len(letters) :] or 0)))
    return tuple(parts)
