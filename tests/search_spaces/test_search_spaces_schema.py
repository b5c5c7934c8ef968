"""The JSON Schema: current, itself valid, and agreeing with the reader about what is shipped."""

from __future__ import annotations

from importlib import resources

import jsonschema  # type: ignore[import-untyped]
import pytest

import search_spaces
from search_spaces.nodes import read_nodes
from search_spaces.schema import SCHEMA_FILE, json_schema, text


def test_the_schema_in_the_repository_is_current() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == text()  # else: python -m search_spaces.schema > the file


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("name", search_spaces.shipped())
def test_a_shipped_space_agrees_with_the_schema_and_names_it(name: str) -> None:
    written = (resources.files("search_spaces") / "spaces" / f"{name}.yaml").read_text(encoding="utf-8")
    assert written.startswith("# yaml-language-server: $schema=../space.schema.json\n")
    jsonschema.validate(read_nodes(written).values, json_schema())


def test_an_unknown_key_disagrees_with_the_schema() -> None:
    with pytest.raises(jsonschema.ValidationError, match="Additional properties"):
        jsonschema.validate({"name": "x", "nmae": 1}, {**json_schema(), "required": []})
