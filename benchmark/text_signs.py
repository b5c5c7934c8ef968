"""What can be seen in a text alone: loops, scripts, languages. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

# A unit longer than this that comes back is a refrain or a list, not a stuck engine.
LONGEST_UNIT = 80
# So many characters, and three rounds at least, must repeat before it is called a loop.
SHORTEST_LOOP = 48

_WORD = re.compile(r"[^\W\d_]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The commonest small words; none stands in two lists, so that a text votes for one language only.
_SMALL_WORDS: dict[str, frozenset[str]] = {
    "English": _words("the and that with was for this are his from they which would there have not you were"),
    "German": _words("der und nicht das ist ein eine mit auf sich dem auch wird sind wie zu von den wurde"),
    "French": _words("les des est dans une pour qui sur avec sont pas vous cette nous ce mais leur ont aux"),
    "Spanish": _words("el los por con las para una como pero sus este cuando muy sin sobre ser hay desde"),
    "Italian": _words("il di che non per della sono gli anche alla del questo nella dei più lo ha essere"),
    "Portuguese": _words("não uma os dos mais foi ao pela seu sua quando muito nos já também só pelo até"),
}


def loop_share(text: str) -> float:
    """Share of the text, from its end, that only repeats a unit of at most 80 characters; 0 for no loop."""
    text = text.rstrip()
    length = len(text)
    longest = 0
    for period in range(1, min(LONGEST_UNIT, length // 3) + 1):
        if text[-1] != text[-1 - period]:
            continue
        same = 0
        while same < length - period and text[length - 1 - same] == text[length - 1 - same - period]:
            same += 1
        run = same + period
        if run >= max(3 * period, SHORTEST_LOOP):
            longest = max(longest, run)
    return longest / length if length else 0.0


def loops(text: str) -> bool:
    """Whether at least half of the text is a loop."""
    return loop_share(text) >= 0.5


def scripts(texts: Iterable[str]) -> Counter[str]:
    """Letters by script (``LATIN``, ``CJK`` ...), and ``BROKEN`` for replacement and control characters."""
    found: Counter[str] = Counter()
    for text in texts:
        for character, times in Counter(text).items():
            if character == "\ufffd" or (unicodedata.category(character) == "Cc" and character not in "\t\n\r\f"):
                found["BROKEN"] += times
            elif character.isalpha():
                found[unicodedata.name(character, "UNNAMED").split(" ")[0].split("-")[0]] += times
    return found


def language(text: str) -> str | None:
    """The language whose small words the text clearly uses; ``None`` for code, tables, short or mixed texts."""
    words = Counter(word.lower() for word in _WORD.findall(text))
    votes = {name: sum(words[word] for word in small) for name, small in _SMALL_WORDS.items()}
    (first, most), (_, second) = sorted(votes.items(), key=lambda vote: -vote[1])[:2]
    total = sum(words.values())
    return first if most >= 4 and most >= 3 * second and total and most / total >= 0.08 else None
