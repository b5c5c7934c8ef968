"""Reading a space: what a file means, and how whatever is wrong is refused with file, line, key and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

import search_spaces
from search_spaces import Space, SpaceError
from search_spaces.reader import parse

GOOD = """\
name: small
description: a space for these tests
model: {path: some/model}
engine:
  interpreter: python3
  flags: {--tp-size: 2}
  environment: {NCCL_IB_DISABLE: "1"}
parameters:
  - name: speculation
    note: on or off
    sets:
      off: {}
      nextn: {--speculative-algorithm: NEXTN, SGLANG_X: 1}
  - name: steps
    note: how far
    flag: --speculative-num-steps
    when: {speculation: nextn}
    values: [1, 2, 3]
  - name: fraction
    note: memory
    flag: --mem-fraction-static
    range: {low: 0.5, high: 0.9, step: 0.1}
    default: 0.8
  - name: proto
    note: protocol
    env: NCCL_PROTO
    values: [unset, LL]
derived:
  - {flag: --speculative-num-draft-tokens, derive: steps + 1, note: follows}
rules:
  - {name: too much, forbid: {steps: ">= 3", proto: LL}, reason: it hangs.}
baseline: {speculation: off}
enqueue:
  - {name: three, note: known, assignment: {speculation: nextn, steps: 3}}
benchmark:
  levels: [{concurrency: 1}]
"""


def read(text: str, **variables: str) -> Space:
    return parse(text, "small.yaml", Path("/nowhere"), variables)


def refusal(text: str, **variables: str) -> str:
    with pytest.raises(SpaceError) as caught:
        read(text, **variables)
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


# What is changed, into what, the line and key that are named, and words of the remedy.
WRONG = {
    "unknown key": (
        "note: how far",
        "notes: how far",
        15,
        "parameters.steps.notes: unknown key",
        "did you mean 'note'?",
    ),
    "unknown section": ("baseline:", "base_line:", 32, "base_line: unknown key", "did you mean 'baseline'?"),
    "missing note": ("    note: how far\n", "", 14, "parameters.steps.note: is missing", "add note: why it is worth"),
    "missing benchmark": (
        "benchmark:\n  levels: [{concurrency: 1}]\n",
        "",
        1,
        "benchmark: is missing",
        "add benchmark",
    ),
    "a word for a number": ("concurrency: 1", "concurrency: many", 36, "concurrency", "give requests in flight"),
    "no concurrency at all": (
        "concurrency: 1",
        "concurrency: 0",
        36,
        "greater than or equal to 1",
        "give requests in flight",
    ),
    "a mapping for a list": (
        "values: [1, 2, 3]",
        "values: {a: 1}",
        18,
        "parameters.steps.values",
        "list of the values to try",
    ),
    "no values": ("values: [1, 2, 3]", "values: []", 18, "parameters.steps.values", "list at least one value"),
    "a value twice": ("values: [1, 2, 3]", "values: [1, 2, 1]", 18, "1 is there twice", "keep one"),
    "true beside 1": ("values: [1, 2, 3]", "values: [1, true]", 18, "true is there twice", "keep one"),
    "a default that is no value": (
        "values: [1, 2, 3]",
        "values: [1, 2]\n    default: 9",
        19,
        "9 is none",
        "take one of 1, 2",
    ),
    "a range without default": ("    default: 0.8\n", "", 19, "a range needs a default", "add default: 0.5"),
    "a range upside down": ("low: 0.5, high: 0.9", "low: 0.9, high: 0.5", 22, "is above high", "swap them"),
    "a range and values": ("    default: 0.8", "    values: [0.8]", 19, "both values and a range", "give one of"),
    "neither flag nor env": ("    env: NCCL_PROTO\n", "", 24, "sets nothing", "give one of flag, env or sets"),
    "flag and env": (
        "    env: NCCL_PROTO",
        "    env: NCCL_PROTO\n    flag: --proto",
        24,
        "flag and env at once",
        "give one of",
    ),
    "no flag": ("flag: --mem-fraction-static", "flag: mem-fraction", 21, "no flag", "write it in full"),
    "the launcher's flag": ("flag: --mem-fraction-static", "flag: --port", 21, "set by the launcher", "take it away"),
    "a flag inside sets": ("--speculative-algorithm: NEXTN", "-x: NEXTN", 13, "'-x' is no flag", "write it in full"),
    "a bare truth for a variable": ("SGLANG_X: 1", "SGLANG_X: true", 13, "true is no text", 'write "1" or "0"'),
    "one flag from two": (
        "--speculative-algorithm: NEXTN",
        "--mem-fraction-static: 1",
        19,
        "as parameter speculation does",
        "let one",
    ),
    "a base variable that varies": (
        "env: NCCL_PROTO",
        "env: NCCL_IB_DISABLE",
        24,
        "every launch",
        "take it out of engine",
    ),
    "a name twice": ("name: proto\n", "name: steps\n", 24, "'steps' is there twice", "another name"),
    "a name in capitals": ("name: proto\n", "name: Proto\n", 24, "parameters.Proto.name", "lower-case letters"),
    "a key twice": (
        "    note: how far\n",
        "    note: how far\n    note: again\n",
        16,
        "given twice, first in line 15",
        "keep one",
    ),
    "an unknown parameter in when": (
        "{speculation: nextn}\n    v",
        "{speculatoin: nextn}\n    v",
        17,
        "no parameter speculatoin",
        "'speculation'",
    ),
    "a later parameter in when": (
        "{speculation: nextn}\n    v",
        "{proto: LL}\n    v",
        17,
        "proto comes later",
        "move proto above",
    ),
    "a value that is never taken": (
        "{speculation: nextn}\n    v",
        "{speculation: nxtn}\n    v",
        17,
        "never nxtn",
        "off, nextn",
    ),
    "a condition that is no mapping": (
        "{speculation: nextn}\n    v",
        "nextn\n    v",
        17,
        "a condition is a mapping",
        "such as",
    ),
    "a comparison with nothing": ('">= 3"', '">="', 31, "rules.too much.forbid", "lacks what to compare with"),
    "a rule on nothing": ("forbid: {steps", "forbid: {step", 31, "no parameter step", "did you mean 'steps'?"),
    "code in an expression": (
        "derive: steps + 1",
        "derive: __import__('os')",
        29,
        "derived.1.derive",
        "is not allowed",
    ),
    "an unknown name in an expression": ("derive: steps + 1", "derive: stepz + 1", 29, "no parameter stepz", "'steps'"),
    "an expression over words": ("derive: steps + 1", "derive: proto + 1", 29, "never a whole number", "derive from"),
    "an unknown name in the baseline": (
        "baseline: {speculation",
        "baseline: {speclation",
        32,
        "baseline.speclation",
        "'speculation'",
    ),
    "a value that the baseline cannot take": (
        "baseline: {speculation: off",
        "baseline: {speculation: on",
        32,
        "on is none",
        "off, nextn",
    ),
    "an enqueued value of nothing": (
        "steps: 3}}",
        "steps: 7}}",
        34,
        "enqueue.three.assignment.steps: 7 is none",
        "1, 2, 3",
    ),
    "an enqueued inactive one": (
        "{speculation: nextn, steps: 3}",
        "{steps: 3}",
        34,
        "does not exist",
        "speculation == nextn",
    ),
    "an enqueued broken rule": ("steps: 3}}", "steps: 3, proto: LL}}", 34, "breaks the rule", "change its values"),
    "a variable that is not set": (
        "some/model",
        "'${NOWHERE_SET}'",
        3,
        "NOWHERE_SET is not set",
        "export NOWHERE_SET=",
    ),
    "a variable where none is replaced": (
        "{--tp-size: 2}",
        "{--tp-size: '${N}'}",
        6,
        "as it stands",
        "only in model.path",
    ),
    "a variable without end": ("some/model", "'${A:-x'", 3, "is no variable", "${NAME:-default}"),
    "an object of Python": ("some/model", "!!python/object/apply:os.system [ls]", 3, "is not allowed", "plain value"),
    "an alias": ("{path: some/model}", "&m {path: *m}", 3, "repeats another place", "write it out"),
    "no YAML": ("engine:\n", "engine: [\n", 6, "this is no YAML", "check indentation"),
    "two levels alike": ("[{concurrency: 1}]", "[{concurrency: 1}, {concurrency: 1}]", 36, "there twice", "keep one"),
}


def test_the_good_space_is_good() -> None:
    space = read(GOOD)
    assert space.configuration({"speculation": "nextn", "steps": 2}).as_dict() == {
        "flags": {
            "--mem-fraction-static": 0.8,
            "--model-path": "some/model",
            "--speculative-algorithm": "NEXTN",
            "--speculative-num-draft-tokens": 3,
            "--speculative-num-steps": 2,
            "--tp-size": 2,
        },
        "environment": {"SGLANG_X": "1"},
    }


@pytest.mark.parametrize(("old", "new", "line", "key", "remedy"), WRONG.values(), ids=list(WRONG))
def test_what_is_wrong_is_refused_with_file_line_key_and_remedy(
    old: str, new: str, line: int, key: str, remedy: str
) -> None:
    first = refusal(changed(old, new)).splitlines()[0]
    assert first.startswith(f"small.yaml:{line}: ")
    assert key in first
    assert remedy in first


def test_the_example_of_the_readme_is_a_space() -> None:
    page = Path(search_spaces.__file__).with_name("README.md").read_text(encoding="utf-8")
    example = page.split("```yaml\n")[1].split("```")[0]
    space = read(example)
    assert space.label(space.enqueued()[0][1]) == "speculation=nextn steps=3"


def test_every_problem_of_a_file_is_named_at_once() -> None:
    sentences = refusal(
        changed("note: how far", "notes: how far").replace("concurrency: 1", "concurrency: 0")
    ).splitlines()
    assert len(sentences) == 2  # not that the misspelt key is missing, nor that the list has no good item
    assert all(sentence.startswith("small.yaml:") for sentence in sentences)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n", "a: 1\n---\nb: 2\n", "\x00", "[" * 5000])
def test_what_is_no_mapping_is_refused_in_one_sentence(text: str) -> None:
    assert len(refusal(text).splitlines()) == 1


def test_on_and_off_are_words_and_small_numbers_are_numbers() -> None:
    space = read(changed("values: [unset, LL]", "values: [on, off, yes, 1e-5, ~, 'unset ', '12', LL]"))
    assert space.parameter("proto").choices == ("on", "off", "yes", 1e-5, None, "unset ", "12", "LL")


def test_variables_are_replaced_where_the_file_may_have_them() -> None:
    text = GOOD.replace("some/model", "'${M:-${H}/m}'").replace("interpreter: python3", "interpreter: ${P:-py}")
    assert read(text, H="/home").model.path == "/home/m"
    space = read(text.replace('"1"}', '"${H}/x"}'), H="/home", M="/elsewhere", P="")
    assert (space.model.path, space.engine.interpreter) == ("/elsewhere", "py")
    assert space.engine.base_environment == {"NCCL_IB_DISABLE": "/home/x"}


def test_the_folder_of_the_rooms_is_always_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUIETLANE_HOME", raising=False)
    space = search_spaces.load("cpu")
    assert Path(space.engine.base_environment["PYTHONPATH"], "sitecustomize.py").is_file()


def test_a_name_that_is_nearly_right_is_corrected() -> None:
    with pytest.raises(SpaceError, match="there is no space 'nxtn'; did you mean 'nextn'"):
        search_spaces.load("nxtn")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=r"mine\.yaml does not exist; give a YAML file or one of cpu"):
        search_spaces.load(tmp_path / "mine.yaml")
    with pytest.raises(SpaceError, match="is a folder"):
        search_spaces.load(tmp_path)


def test_a_file_of_the_users_own_is_read_and_finds_its_prompts_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(changed("benchmark:\n", "benchmark:\n  prompts: mine.jsonl\n"))
    assert search_spaces.load(file).benchmark.prompts == str(tmp_path / "mine.jsonl")


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"name: x\ndescription: \xff\xfe\n")
    with pytest.raises(SpaceError, match=r"mine\.yaml:2: this is no UTF-8 text; save it as UTF-8"):
        search_spaces.load(file)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"#" * 2_000_000)
    with pytest.raises(SpaceError, match="too many for a space"):
        search_spaces.load(file)
