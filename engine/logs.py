"""Reading an engine's log: phases of every rank, ready or not, version, and the failure, in one pass.

    reader = LogReader()
    reader.feed(some_bytes)          # as often as there are bytes, cut anywhere
    reader.finish()                  # the log has ended: a last line without newline counts too
    reader.phases, reader.ready, reader.version, reader.failure()

Pure: no clock, no files. Memory is constant: a line is kept until its end (at most a mebibyte), the phases, and the
first forty troubles. Speed comes from never decoding a line in which no known literal occurs. When a log holds several
starts, one after another, the last one counts.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import lru_cache

from engine import knowledge
from engine.failure import Failure
from engine.log_phases import PhaseBook
from engine.log_prefix import Message, Unwrapper, first_stamp, last_stamp
from engine.log_rules import bar_of, event_of, needles
from engine.log_troubles import NEEDLES, Trouble, TroubleCollector
from engine.log_version import NEEDLES as VERSION_NEEDLES
from engine.log_version import Versions
from engine.phase import PHASES, Phase
from engine.progress import Progress, StartHistory, progress_of

_SLICE = 1 << 18  # bytes looked at in one go: they stay in the second-level cache
_LONGEST_LINE = 1 << 20
_AGAIN = b"server_args="
_ONLY, _PARENT = "TP0", "main"
_CALM_EXITS = (None, 0, -15, 143)  # the ends of an engine that was asked to end
_PRECEDENCE = {"exception": 0, "refusal": 1, "parent exception": 1, "line": 2, "death": 3, "timeout": 4, "peer": 5}


@lru_cache(maxsize=1024)
def _known(text: str) -> bool:
    """The knowledge base has something to say of this line that could be a cause."""
    hit = knowledge.find(text)
    return hit is not None and hit[0].blame not in ("harmless", "peer")


class LogReader:
    """Reads the log of one engine, whatever wraps it (see the module's docstring for use).

    Args:
        started_at: unix seconds of the launch, where known; otherwise the imports begin with the log's first time.
    """

    def __init__(self, started_at: float | None = None) -> None:
        self._started_at = started_at
        self._carry = b""
        self._bar = b""
        self._unwrapper = Unwrapper()
        self._versions = Versions()
        self._last_at = started_at
        self._begin_again()

    def _begin_again(self) -> None:
        self._book = PhaseBook(self._started_at)
        self._troubles = TroubleCollector()
        self._wanted = tuple(needle for needle in (*needles(), *NEEDLES, *VERSION_NEEDLES) if needle != _AGAIN)

    # -- what is known so far

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Every phase begun, rank by rank (``main`` while no rank has spoken), in the order of their beginnings."""
        return self._book.phases()

    @property
    def ready(self) -> bool:
        """The engine has said that it is ready."""
        return self._book.ready

    @property
    def version(self) -> str | None:
        """SGLang's version, exact where the log tells (``0.5.17``), else a range (``0.5.18-0.5.22``), else ``None``."""
        return self._versions.answer()

    @property
    def fatal(self) -> bool:
        """The engine has said that it ends; what follows is the end of the others."""
        return self._troubles.fatal

    @property
    def last_at(self) -> float | None:
        """The log's last time, unix seconds."""
        return self._last_at

    def progress(self, history: StartHistory | None = None, now: float | None = None) -> Progress:
        """How far the start is. ``now`` (unix seconds) is the log's last time where it is not given."""
        return progress_of(self.phases, self.ready, now if now is not None else self._last_at, history)

    def failure(self, exit_status: int | None = None) -> Failure | None:
        """Why the engine ended; ``None`` if nothing says that it did.

        Call it when the engine is gone, with its exit status where known, or when ``fatal`` is set. The order of
        belief: the first exception of a rank, then a refusal or an exception of the parent, then lines that the
        knowledge base knows, then the deaths of ranks, then watchdogs; that peers are gone is a cause only for want
        of any other.
        """
        collector = self._troubles
        if collector.open:
            collector = copy.deepcopy(collector)
            collector.close()
        asked = exit_status in _CALM_EXITS
        if not collector.fatal and asked and (self.ready or not self._unproven(collector)):
            return None
        causes = [trouble for trouble in collector.troubles if not (trouble.after_ready and self._is_aside(trouble))]
        if not causes:
            return self._silent(exit_status)
        first = min(causes, key=lambda trouble: (_PRECEDENCE[trouble.kind], trouble.order))
        return self._judge(first, causes)

    # -- reading

    def feed(self, data: bytes) -> None:
        """Reads more of the log; the cuts may be anywhere."""
        view = memoryview(data)
        for begin in range(0, len(view), _SLICE):
            self._take(self._carry + bytes(view[begin : begin + _SLICE]))

    def finish(self) -> None:
        """The log has ended."""
        rest, self._carry = self._carry, b""
        if rest:
            self._region(rest + b"\n")
        self._troubles.close()

    def _take(self, chunk: bytes) -> None:
        # a carriage return at the very end may be half of a Windows newline
        cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r", 0, len(chunk) - 1)) + 1
        self._carry = chunk[cut:]
        if cut:
            self._region(chunk[:cut])
        if len(self._carry) > _LONGEST_LINE:
            rest, self._carry = self._carry, b""
            self._region(rest)
        elif b"|" in self._carry:
            self._peek(self._carry)

    def _region(self, region: bytes) -> None:
        if b"\r" in region:
            region = region.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._book.first_at is None:
            self._book.first_at = first_stamp(region)
        self._last_at = last_stamp(region) or self._last_at
        position = 0
        for begin, end in self._hits(region):
            if self._wants_all:
                position = self._read_on(region, position)
            if begin >= position:
                self._line(region[begin:end])
                position = end + 1
        if self._wants_all:
            self._read_on(region, position)
        if self._bar:
            self._draw()

    def _hits(self, region: bytes) -> Iterator[tuple[int, int]]:
        """Begin and end of each line in which a needle occurs, in order."""
        lines: dict[int, int] = {}
        find, size, begin = region.find, len(region), 0
        while begin < size:
            # the dump of the arguments has twenty thousand characters: it is looked for first, and then left out
            at = find(_AGAIN, begin)
            end = size
            if at >= 0:
                end = region.rfind(b"\n", 0, at) + 1
                after = find(b"\n", at)
                lines[end] = after if after >= 0 else size
            self._mark(region, begin, end, lines)
            begin = lines[end] + 1 if at >= 0 else size
        return iter(sorted(lines.items()))

    def _mark(self, region: bytes, begin: int, stop: int, lines: dict[int, int]) -> None:
        find = region.find
        for needle in self._wanted:
            at = find(needle, begin, stop)
            while at >= 0:
                end = find(b"\n", at, stop)
                end = stop if end < 0 else end
                lines[region.rfind(b"\n", begin, at) + 1 or begin] = end
                at = find(needle, end, stop)

    @property
    def _wants_all(self) -> bool:
        return self._troubles.open or self._versions.reading_usage

    def _read_on(self, region: bytes, position: int) -> int:
        """Reads every line while a traceback or a usage text lasts; returns where it stopped."""
        while self._wants_all and position < len(region):
            end = region.find(b"\n", position)
            end = len(region) if end < 0 else end
            self._line(region[position:end])
            position = end + 1
        return position

    def _peek(self, torn: bytes) -> None:
        """A bar without newline yet: how far it is."""
        event = bar_of(torn[-400:])
        if event is not None:
            self._book.apply(event, None, None)

    def _draw(self) -> None:
        event, self._bar = bar_of(self._bar), b""
        if event is not None:
            self._book.apply(event, None, None)

    def _line(self, raw: bytes) -> None:
        stamps = raw.count(b"[20")
        if not stamps and (b"Completed | " in raw or b"Capturing " in raw) and not self._wants_all:
            self._bar = raw  # of a run of bars only the last says anything
            return
        if self._bar:
            self._draw()
        if self._troubles.open and not stamps and raw.startswith(b"    "):  # source text below a frame
            self._troubles.take(Message(None, None, raw.decode("utf-8", "replace"), False), None, self.ready)
            return
        if stamps <= 1 and knowledge.is_noise(raw):
            return
        for message in self._unwrapper.messages(raw.decode("utf-8", "replace")):
            self._versions.read_line(message.text)
            self._message(message)

    def _message(self, message: Message) -> None:
        if self._book.ready and _AGAIN.decode() not in message.text:
            self._trouble(message)
            return
        event = event_of(message.text, message.stamped)
        if event is None:
            bar = None if message.stamped else bar_of(message.text.encode())
            if bar is not None:
                self._book.apply(bar, None, None)
            else:
                self._trouble(message)
            return
        if self._troubles.open:
            self._troubles.close()
        if event.name == "arguments":
            self._arguments(event.groups.get("names") or "", message)
        if self._book.first_at is None:
            self._book.first_at = message.at
        if self._book.ready:
            return
        if event.name in ("begin", "end", "ready"):
            self._troubles.forget_unproven()
        self._versions.read_wording(event.versions)
        self._book.apply(event, message.rank, message.at)
        if self._book.ready:
            self._wanted = NEEDLES

    def _arguments(self, dump: str, message: Message) -> None:
        if self._book.ready or self._troubles.fatal:
            self._begin_again()
            self._book.first_at = message.at if self._started_at is None else self._started_at
        self._versions.read_arguments(dump)
        at = dump.find("speculative_algorithm")
        algorithm = re.match(r"speculative_algorithm'?[=:] ?None", dump[at : at + 40]) if at >= 0 else None
        self._book.speculative = algorithm is None

    def _trouble(self, message: Message) -> None:
        rank = self._book.rank_named(message.rank)
        if message.rank is None and rank == _PARENT and "Scheduler hit an exception" in message.text:
            rank = _ONLY
        known = len(self._troubles.troubles)
        taken = self._troubles.take(message, rank, self.ready)
        if not taken and _known(message.text.strip()):
            self._troubles.note(message, rank, self.ready)
        for trouble in self._troubles.troubles[known:]:
            trouble.phase, trouble.otherwise = self._where(trouble.rank or rank)

    # -- judging

    def _where(self, rank: str) -> tuple[str, str]:
        """(the phase that the rank is in, or empty between phases; the best guess there)."""
        if self.ready:
            return "serving", "serving"
        names = self._book.names
        if not names:
            return ("", "arguments") if rank == _PARENT else ("", "imports")
        last = self._book.last_phase(rank) or ""
        ahead = [phase for name in names if (phase := self._book.open_phase(name)) is not None]
        further = [phase for phase in ahead if not last or PHASES.index(phase) > PHASES.index(last)]
        own = self._book.open_phase(rank)
        guess = further[0] if further else last or (self._book.last_phase(names[0]) or "imports")
        return own or "", guess

    def _phase_of(self, trouble: Trouble) -> str:
        if trouble.after_ready or trouble.phase == "serving":
            return "serving"
        if trouble.phase:
            return trouble.phase
        if trouble.kind == "exception" and (phase := trouble.phase_of_frames()) is not None:
            if phase == "weights" and trouble.rank and self._book.has(trouble.rank, "weights"):
                return "draft weights"
            return phase
        return trouble.otherwise

    @staticmethod
    def _unproven(collector: TroubleCollector) -> bool:
        """Something went wrong, nobody called it the end, and the start has not gone on since."""
        return any(
            trouble.kind in ("parent exception", "exception", "line") and not trouble.survived
            for trouble in collector.troubles
        )

    @staticmethod
    def _is_aside(trouble: Trouble) -> bool:
        """A request that went wrong while the engine served on."""
        return trouble.kind == "parent exception" and not trouble.certain

    def _silent(self, exit_status: int | None) -> Failure:
        where = self._where(_PARENT)
        return knowledge.classify("", where[0] or where[1], None, exit_status, self.version)

    def _judge(self, first: Trouble, causes: list[Trouble]) -> Failure:
        # The exit status is left out: a parent that hears of a child's death kills itself, too, with 137.
        phase = self._phase_of(first)
        evidence = first.evidence()
        if first.kind == "peer":
            evidence = "\n".join(trouble.evidence() for trouble in causes)
        failure = knowledge.classify(evidence, phase, first.rank, None, self.version, cause=first.cause)
        if failure.blame != "unknown" or first.kind in ("refusal", "line"):
            return failure
        for line in causes:
            if line.kind == "line":
                told = knowledge.classify(line.cause, phase, first.rank, None, self.version)
                if told.blame != "unknown":
                    both = f"{line.evidence()}\n{evidence}"
                    return Failure(first.rank, phase, told.cause, told.blame, told.remedy, both[-4000:])
        return failure
