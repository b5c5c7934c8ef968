"""Prompt files, and which prompt each request gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmark.answers import gate_prompts
from benchmark.prompt_source import PromptSource
from benchmark.prompts import Prompt, PromptsError, load
from benchmark.results import Level


def written(folder: Path, *lines: str) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_the_bundled_prompts_are_many_and_of_four_kinds() -> None:
    file = Path(__file__).parents[2] / "benchmark" / "prompts" / "default.jsonl"
    kinds = [json.loads(line)["kind"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(load()) == len(kinds) >= 64
    assert all(kinds.count(kind) >= 16 for kind in ("code", "prose", "question", "structured"))


def test_the_gate_asks_other_prompts_than_the_load() -> None:
    assert len(gate_prompts()) >= 12
    assert not {prompt.text for prompt in gate_prompts()} & {prompt.text for prompt in load()}


def test_strings_objects_and_conversations_are_read(tmp_path: Path) -> None:
    conversation = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]}
    path = written(tmp_path, '"one\u2028line"', '{"prompt": "two"}', "", json.dumps(conversation), '"two"')
    one, two, three = load(path, fewest=3)
    assert (one.text, two.text) == ("one\u2028line", "two")
    assert three.text == "Be brief.\n\nWhy?"
    assert three.chat() == conversation["messages"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"prompt": ', ":2: not JSON"),
        ("7", ':2: holds no prompt; write "text"'),
        ('{"text": "x"}', ":2: holds no prompt"),
        ('"  "', ":2: the prompt is empty"),
        ('{"messages": []}', ":2: messages is no list of messages"),
        ('{"messages": [{"role": "user"}]}', ":2: a message lacks a role or a text"),
        ('{"messages": [{"role": "user", "content": " "}]}', ":2: the messages are empty"),
        ('"\\ud800"', ":2: holds half a surrogate pair"),
    ],
)
def test_a_wrong_line_is_named_with_its_remedy(tmp_path: Path, line: str, sentence: str) -> None:
    path = written(tmp_path, '"fine"', line)
    with pytest.raises(PromptsError) as refused:
        load(path)
    assert str(path) + sentence in str(refused.value)
    assert "write" in str(refused.value)


def test_a_missing_file_a_folder_an_empty_file_and_too_few_prompts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptsError, match="there is no such prompt file"):
        load(tmp_path / "nowhere.jsonl")
    with pytest.raises(PromptsError, match="cannot be read"):
        load(tmp_path)
    with pytest.raises(PromptsError, match="holds no prompt"):
        load(written(tmp_path, "", " "))
    with pytest.raises(PromptsError, match="holds 2 different prompts; give at least 8"):
        load(written(tmp_path, '"a"', '"b"', '"a"'))


def test_a_file_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'"fine"\n"caf\xe9"\n')
    with pytest.raises(PromptsError, match=r":2: byte 0xe9 is not UTF-8"):
        load(path)


LEVELS = (Level(1, None, 64, 16), Level(4, None, 64, 16), Level(16, None, 64, 32), Level(4, 2000, 64, 16))


def everything(source: PromptSource, warm_ups: int = 5) -> list[str]:
    texts: list[str] = []
    for level in (*LEVELS, LEVELS[0]):
        prompts = source.begin(level)
        texts += [prompts.calibration(index).text for index in range(2)]
        texts += [prompts.warm_up(index).text for index in range(warm_ups)]
        texts += [prompts.measured(index).text for index in range(level.requests + 3)]
    return texts


def test_no_text_is_handed_out_twice_and_none_begins_as_another_does() -> None:
    texts = everything(PromptSource(load(), levels=LEVELS))
    assert len(set(texts)) == len(texts)
    marked = [text for text in texts if text not in {prompt.text for prompt in load()}]
    assert len({text.removeprefix("# ")[:40] for text in marked}) == len(marked)


def test_prompts_are_as_they_are_while_the_file_lasts() -> None:
    source = PromptSource(load(), levels=LEVELS)
    own = {prompt.text for prompt in load()}
    for level in LEVELS[:3]:
        prompts = source.begin(level)
        assert all(prompts.measured(index).text in own for index in range(level.requests))


def test_equal_seeds_give_equal_prompts_however_long_a_warm_up_took_and_whatever_was_left_out() -> None:
    first, second = PromptSource(load(), seed=3, levels=LEVELS), PromptSource(load(), seed=3, levels=LEVELS)
    slow = first.begin(LEVELS[0])
    for index in range(50):
        slow.warm_up(index)
    first.begin(LEVELS[1])
    a, b = first.begin(LEVELS[2]), second.begin(LEVELS[2])
    assert [a.measured(index) for index in range(32)] == [b.measured(index) for index in range(32)]
    other = PromptSource(load(), seed=4, levels=LEVELS).begin(LEVELS[2])
    assert [other.measured(index) for index in range(32)] != [b.measured(index) for index in range(32)]


@pytest.mark.parametrize("tokens", [5, 40, 300, 20000])
def test_prompts_are_lengthened_and_cut_to_about_the_characters_of_their_tokens(tokens: int) -> None:
    prompts = PromptSource(load()).begin(Level(1, tokens, 16, 16))
    prompts.characters_per_token = 3.5
    for index in range(16):
        assert len(prompts.measured(index).text) == pytest.approx(3.5 * tokens, rel=0.02, abs=40)


def test_a_lengthened_prompt_still_ends_with_a_prompt_of_the_file() -> None:
    prompts = PromptSource(load()).begin(Level(1, 1000, 16, 16))
    endings = tuple(prompt.text for prompt in load())
    assert all(prompts.measured(index).text.endswith(endings) for index in range(16))


def test_conversations_keep_their_messages_when_marked_and_lengthened() -> None:
    talk = Prompt.conversation((("system", "Be brief."), ("user", "Why is the sky blue?")))
    marked = PromptSource([talk]).begin(Level(1)).warm_up(0)
    assert [role for role, _ in marked.messages] == ["system", "user"]
    assert marked.messages[0][1].endswith("Be brief.")
    long = PromptSource([talk, *load()]).begin(Level(1, 1000, 16, 200))
    texts = [long.measured(index) for index in range(91)]
    lengthened = next(prompt for prompt in texts if prompt.messages)
    assert lengthened.messages[1][1].endswith("Why is the sky blue?")
    assert len(lengthened.text) == pytest.approx(4000, rel=0.05)
