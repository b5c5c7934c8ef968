"""The correctness gate: what it forgives and what it catches."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from benchmark.answers import Answers, GreedyAnswer, native_answer
from benchmark.judgement import Fault, agreement, judge, judge_acceptance, judge_under_load
from benchmark.results import RequestSample
from benchmark.text_signs import language, loop_share, loops, scripts

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "wizards",
    "and",
    "their",
    "apprentice",
    "watch",
    "from",
    "the",
    "hill",
    "with",
    "tea",
    "because",
    "nothing",
    "else",
    "was",
    "planned",
    "for",
    "this",
    "afternoon",
    "in",
    "early",
    "spring",
    "before",
    "the",
    "rain",
]
PROMPTS = tuple(f"prompt {number}" for number in range(16))


def answer(words: list[str], sure: float = 3.0, finish: str = "length") -> GreedyAnswer:
    """An answer of whole words; the engine preferred each by ``sure`` nats to the next token."""
    tokens = tuple(hash_of(word) for word in words)
    own = math.log(1 - math.exp(-sure)) if sure > 0.1 else -1.0
    alternatives = tuple(((token, own), (token + 1, own - sure), (9, -9.0)) for token in tokens)
    return GreedyAnswer(" ".join(words), len(words), finish, tokens, (own,) * len(words), alternatives)


def hash_of(word: str) -> int:
    return sum(ord(letter) * 31**place for place, letter in enumerate(word)) % 10_000 * 10


def sentence(number: int, length: int = 48) -> list[str]:
    return random.Random(number).choices(WORDS, k=length)


REFERENCE = Answers(PROMPTS, tuple(answer(sentence(number)) for number in range(16)))


def changed(change: object, count: int = 16) -> Answers:
    """The reference with the first ``count`` answers put through a change."""
    answers = REFERENCE.answers
    return Answers(PROMPTS, tuple(change(a) if i < count else a for i, a in enumerate(answers)))  # type: ignore[operator]


def kinds(faults: list[Fault]) -> set[str]:
    return {fault.kind for fault in faults}


def parted(given: GreedyAnswer, place: int, lead: float) -> GreedyAnswer:
    """As another engine would go on from a token that the reference found ``lead`` nats less likely."""
    other = answer(given.text.split()[:place] + sentence(place + 99, 48 - place))
    second = given.alternatives[place][1][0] if lead < 3.1 else 7
    return dataclasses.replace(
        other,
        tokens=(*given.tokens[:place], second, *other.tokens[place + 1 :]),
        logprobs=(*given.logprobs[:place], *other.logprobs[place:]),
    )


def test_the_same_answers_have_no_fault() -> None:
    assert judge(REFERENCE, REFERENCE) == []
    assert judge(None, REFERENCE) == []
    assert agreement(REFERENCE, REFERENCE).same == 16


def test_answers_that_part_at_near_ties_are_forgiven() -> None:
    reference = Answers(PROMPTS, tuple(answer(sentence(number), sure=0.2) for number in range(16)))
    drifted = Answers(PROMPTS, tuple(parted(a, 5 + i, 0.2) for i, a in enumerate(reference.answers)))
    assert judge(reference, drifted) == []
    told = agreement(reference, drifted)
    assert (told.same, told.parted, told.near_ties) == (0, 16, 16)
    assert "16 parted (16 at a near tie)" in told.sentence()


def test_one_answer_that_parts_elsewhere_is_forgiven_and_many_are_not() -> None:
    assert judge(REFERENCE, changed(lambda a: parted(a, 9, 9.0), 2)) == []
    faults = judge(REFERENCE, changed(lambda a: parted(a, 9, 9.0), 5))
    assert kinds(faults) == {"other text"}
    assert faults[0].sentence.startswith("5 of 16 answers leave the baseline's")
    assert "became" in faults[0].evidence
    assert "prompt 0" in faults[0].evidence


def test_small_distances_of_log_probabilities_are_forgiven_and_large_ones_are_not() -> None:
    def shifted(by: float) -> Answers:
        return changed(lambda a: dataclasses.replace(a, logprobs=tuple(value - by for value in a.logprobs)))

    assert judge(REFERENCE, shifted(0.1)) == []
    assert kinds(judge(REFERENCE, shifted(0.8))) == {"other probabilities"}


def test_a_log_probability_that_is_no_number_is_a_fault_even_without_a_reference() -> None:
    broken = changed(lambda a: dataclasses.replace(a, logprobs=(math.nan, *a.logprobs[1:])), 1)
    assert kinds(judge(None, broken)) == {"not a number"}
    assert "not a number" in kinds(judge(REFERENCE, broken))


def test_a_prompt_without_an_answer_is_a_fault_with_its_error() -> None:
    failed = changed(lambda _: GreedyAnswer("", 0, "error", error="HTTP 500: device-side assert"), 1)
    (fault,) = judge(REFERENCE, failed)
    assert fault.kind == "no answer"
    assert "device-side assert" in fault.sentence


def test_empty_answers_are_a_fault_where_the_baselines_are_not_empty() -> None:
    emptied = changed(lambda _: answer([], finish="stop"), 2)
    assert "empty" in kinds(
        judge(REFERENCE, dataclasses.replace(emptied, answers=tuple(blank(a) for a in emptied.answers)))
    )
    both = Answers(PROMPTS, (answer([], finish="stop"), *REFERENCE.answers[1:]))
    assert judge(both, both) == []


def blank(given: GreedyAnswer) -> GreedyAnswer:
    return given if given.text else dataclasses.replace(given, text="\n", output_tokens=3, tokens=(1, 1, 1))


def test_answers_cut_off_before_their_length_are_a_fault() -> None:
    cut = changed(lambda a: answer(a.text.split()[:20]), 1)
    assert "truncated" in kinds(judge(REFERENCE, cut))


def test_answers_that_stop_far_too_soon_are_a_fault_if_many_do() -> None:
    def stopped(count: int) -> Answers:
        return changed(lambda a: answer(a.text.split()[:6], finish="stop"), count)

    assert judge(REFERENCE, stopped(2)) == []
    assert kinds(judge(REFERENCE, stopped(8))) == {"truncated"}


def test_repeated_tokens_are_a_fault_unless_the_baseline_repeats_itself_likewise() -> None:
    stuck = changed(lambda a: answer([*a.text.split()[:2], *["!"] * 46]), 12)
    assert "repeated tokens" in kinds(judge(REFERENCE, stuck))
    assert judge(stuck, stuck) == []
    # A small model that loops in other places than before, after near ties: healthy.
    here = Answers(PROMPTS, tuple(answer((["a", "b"] * 24) if n % 3 == 0 else sentence(n), 0.2) for n in range(16)))
    there = Answers(
        PROMPTS,
        tuple(
            dataclasses.replace(answer((["a", "b"] * 24) if n % 3 == 1 else sentence(n), 0.2), tokens=a.tokens[:-1])
            for n, a in enumerate(here.answers)
        ),
    )
    assert "repeated tokens" not in kinds(judge(here, there))


def test_another_script_another_language_and_broken_characters_are_faults() -> None:
    def saying(text: str) -> Answers:
        return changed(lambda a: dataclasses.replace(a, text=text + a.text[:3], tokens=(), alternatives=()))

    english = Answers(PROMPTS, tuple(dataclasses.replace(a, tokens=(), alternatives=()) for a in REFERENCE.answers))
    assert "wrong language" in kinds(judge(english, saying("Все счастливые семьи похожи друг на друга, каждая " * 3)))
    german = "Der Zug ist nicht auf dem Gleis und wird von den Leuten mit der Fahne auch nicht gesehen. " * 2
    assert "wrong language" in kinds(judge(english, saying(german)))
    assert "broken text" in kinds(judge(english, saying("the \ufffd\ufffd\ufffd\x00 fox " * 9)))


def test_the_same_text_for_every_prompt_is_a_fault() -> None:
    assert "same text for every prompt" in kinds(judge(None, changed(lambda _: REFERENCE.answers[0])))


def test_without_log_probabilities_the_first_characters_decide() -> None:
    def bare(given: GreedyAnswer) -> GreedyAnswer:
        return GreedyAnswer(given.text, given.output_tokens)

    reference = changed(bare)
    later = changed(lambda a: bare(answer(a.text.split()[:8] + sentence(5, 40))))
    at_once = changed(lambda a: bare(answer(list(reversed(a.text.split())))))
    assert judge(reference, later) == []
    assert "other text" in kinds(judge(reference, at_once))


def test_answers_to_other_prompts_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="collect both with the same prompts"):
        judge(REFERENCE, Answers(PROMPTS[:2], REFERENCE.answers[:2]))


def test_acceptance_beyond_steps_plus_one_is_impossible_except_for_the_first_token() -> None:
    # Seen with the real SGLang 0.5.23, NEXTN with 3 steps: 5 tokens after one verification give 5.0.
    assert judge_acceptance([(5.0, 5)], 3) == []
    assert kinds(judge_acceptance([(4.6, 200)], 3)) == {"impossible acceptance"}
    assert judge_acceptance([(4.0, 200)], 3) == []
    assert judge_acceptance([(9.0, 200)], None) == []


def test_acceptance_of_exactly_one_is_a_dead_draft_and_slightly_more_is_a_poor_one() -> None:
    assert kinds(judge_acceptance([(64 / 63, 64)] * 16, 3)) == {"dead acceptance"}
    assert judge_acceptance([(1.03, 64)] * 16, 3) == []
    assert judge_acceptance([(1.1, 10)], 3) == []
    assert judge_acceptance([(None, 64)] * 16, 3) == []


def test_under_load_shares_of_signs_are_held_against_the_baselines() -> None:
    good = [" ".join(sentence(number)) for number in range(12)]
    stuck = ["no no no " * 20] * 12
    sample = RequestSample(0, 10, 5, 4, 100, acceptance_length=2.5)
    assert judge_under_load(good, good[::-1], [sample], 3) == []
    assert kinds(judge_under_load(good, stuck, [sample], 3)) == {"repeated tokens"}
    assert judge_under_load(stuck, stuck, [sample], 3) == []
    assert kinds(judge_under_load(good, [""] * 12, [], 3)) == {"empty"}
    assert kinds(judge_under_load(good, good, [dataclasses.replace(sample, acceptance_length=7)], 3)) == {
        "impossible acceptance"
    }


def test_a_loop_is_what_repeats_to_the_end_of_a_text() -> None:
    assert loop_share("!" * 100) == 1
    assert loops("some words and then " + "again and " * 20)
    assert not loops(" ".join(sentence(1)))
    assert not loops("again and " * 10 + " ".join(sentence(2)))
    assert not loops("")
    assert not loops("1. one\n2. two\n3. three\n4. four\n5. five\n6. six\n7. seven\n8. eight\n")


def test_languages_and_scripts_are_told_where_they_are_clear() -> None:
    assert language("The fox was there and they would have seen it from the hill with this glass") == "English"
    assert language("Le renard est dans les bois avec sa famille, mais pas pour une longue nuit") == "French"
    assert language("def f(x):\n    return x + 1\n" * 5) is None
    assert scripts(["ab", "жд", "光合"]) == {"LATIN": 2, "CYRILLIC": 2, "CJK": 2}


def test_answers_survive_json() -> None:
    assert Answers.from_json(REFERENCE.as_json()) == REFERENCE


def test_an_answer_of_the_real_engine_is_read() -> None:
    # From SGLang 0.5.23 on the CPU, /generate with return_logprob and top_logprobs_num 2, shortened to two tokens.
    value = {
        "text": "\n        return",
        "output_ids": [265, 374],
        "meta_info": {
            "finish_reason": {"type": "length", "length": 2},
            "prompt_tokens": 5,
            "completion_tokens": 2,
            "output_token_logprobs": [[-0.5930460691452026, 265, None], [None, 374, None]],
            "output_top_logprobs": [
                [[-0.593, 265, None], [-1.03, 270, None]],
                [[-1.19, 374, None], [-2.25, 425, None]],
            ],
            "spec_accept_length": 2.0,
        },
    }
    read = native_answer(value)
    assert read.tokens == (265, 374)
    assert math.isnan(read.logprobs[1])
    assert read.alternatives[0][1] == (270, -1.03)
    assert (read.finish, read.acceptance_length) == ("length", 2.0)
