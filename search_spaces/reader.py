"""From a YAML file to a space; whatever is wrong is refused with file, line, key and remedy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from search_spaces.consistency import problems
from search_spaces.errors import Problem, SpaceError, near
from search_spaces.nodes import Document, Unreadable, Where, read_nodes
from search_spaces.space import Space
from search_spaces.variables import EXPANDED, expand, surroundings

_SHIPPED = resources.files("search_spaces") / "spaces"
_SEE = "see search_spaces/README.md"
_UNKNOWN, _MISSING = "unknown key", "is missing"
_LARGEST = 1_000_000  # bytes; a space is a page or three


def shipped() -> tuple[str, ...]:
    """Names of the spaces that come with quietlane."""
    return tuple(sorted(Path(str(file)).stem for file in _SHIPPED.iterdir() if file.name.endswith(".yaml")))


def load(name_or_path: str | os.PathLike[str]) -> Space:
    """The space of a name (``nextn``) or a file (``./mine.yaml``). Raises SpaceError."""
    name = os.fspath(name_or_path)
    if name in shipped():
        return _read(Path(str(_SHIPPED / f"{name}.yaml")))
    path = Path(name).expanduser()
    if path.is_file():
        return _read(path)
    if path.suffix in (".yaml", ".yml") or os.sep in name:
        what = "is a folder" if path.is_dir() else "does not exist"
        raise SpaceError(f"the space {name} {what}; give a YAML file or one of {', '.join(shipped())}")
    raise SpaceError(f"there is no space {name!r}; {near(name, shipped())}")


def _read(path: Path) -> Space:
    try:
        raw = path.read_bytes()
        if len(raw) > _LARGEST:
            raise SpaceError(f"{path}: {len(raw)} bytes are too many for a space; give a YAML file below 1 MB")
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise SpaceError(f"{path}: cannot be read ({error.strerror}); check its path and permissions") from None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise SpaceError(f"{path}:{line}: this is no UTF-8 text; save it as UTF-8") from None
    return parse(text, str(path), path.parent)


def parse(text: str, source: str, folder: Path, variables: Mapping[str, str] | None = None) -> Space:
    """The space in a text. Raises SpaceError.

    ``source`` names the text in errors; a relative prompts file lies in ``folder``.
    """
    document = Document({})
    try:
        document = read_nodes(text)
        values = document.values
        if not isinstance(values, dict):
            raise Unreadable(Problem((), "a space is a mapping", "begin with name: and description:"), 1)
        values = _with_variables(values, document, surroundings() if variables is None else variables)
        values = _with_prompts(values, folder)
        space = Space.model_validate(values)
    except Unreadable as error:
        raise SpaceError(_sentence(error.problem, error.line, document, source)) from None
    except ValidationError as error:
        found = _without_echoes([_problem(details) for details in error.errors()])
        raise SpaceError([_sentence(one, document.line(one.where), document, source) for one in found]) from None
    found = problems(space)
    if found:
        raise SpaceError([_sentence(one, document.line(one.where), document, source) for one in found])
    return space


def _with_variables(value: Any, document: Document, variables: Mapping[str, str], where: Where = ()) -> Any:
    if isinstance(value, dict):
        return {key: _with_variables(one, document, variables, (*where, key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_variables(one, document, variables, (*where, at)) for at, one in enumerate(value)]
    if not isinstance(value, str) or "${" not in value or where[-1] in ("note", "reason", "description"):
        return value
    if not any(where[: len(place)] == place for place in EXPANDED):
        places = ", ".join(".".join(place) for place in EXPANDED)
        problem = Problem(
            where, f"{value!r} would reach the engine as it stands", f"variables are replaced only in {places}"
        )
        raise Unreadable(problem, document.line(where))
    try:
        return expand(value, variables)
    except ValueError as error:
        what, _, remedy = str(error).partition("; ")
        raise Unreadable(Problem(where, what, remedy), document.line(where)) from None


def _with_prompts(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    plan = values.get("benchmark")
    prompts = plan.get("prompts") if isinstance(plan, dict) else None
    if not isinstance(plan, dict) or not isinstance(prompts, str) or not prompts:
        return values
    return {**values, "benchmark": {**plan, "prompts": str((folder / Path(prompts).expanduser()).absolute())}}


def _problem(details: ErrorDetails) -> Problem:
    where: Where = tuple(step for step in details["loc"] if step != "[key]")
    kind, section, key = details["type"], _section(where[:-1]), str(where[-1]) if where else ""
    field = next((one for name, one in section.items() if name == key), None)
    if kind == "extra_forbidden":
        return Problem(where, _UNKNOWN, near(key, section))
    if kind == "missing":
        return Problem(where, _MISSING, f"add {key}: {field or '...'}".rstrip(": "))
    message = details["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        what, _, remedy = message.partition("; ") if "; " in message else message.partition(": ")
        return Problem(where, what, remedy or (f"give {field}" if field else _SEE))
    given = details["input"]
    what = message.removeprefix("Input ").partition(", unable")[0].replace("tuple", "list").replace("Tuple", "the list")
    return Problem(
        where, what if isinstance(given, dict | list) else f"{what}, not {given!r}", f"give {field}" if field else _SEE
    )


def _section(where: Where) -> dict[str, str]:
    """The keys that the mapping at a place may have, each with what belongs there."""
    model: Any = Space
    for step in where:
        if isinstance(step, int):
            continue
        fields = {info.alias or name: info for name, info in model.model_fields.items()}
        inner = _models(fields[step].annotation) if step in fields else []
        if not inner:
            return {}
        model = inner[0]
    return {info.alias or name: info.description or "" for name, info in model.model_fields.items()}


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]


def _without_echoes(found: list[Problem]) -> list[Problem]:
    """Causes only, misspelt keys first: a union of types reports a place once for each type, a list of bad items
    reports that it has no good ones, and a misspelt key is also reported missing."""
    first: dict[Where, Problem] = {}
    for problem in sorted(found, key=lambda one: one.what != _UNKNOWN):
        where = tuple(step for step in problem.where if step not in ("int", "float", "str", "bool"))
        first.setdefault(where, Problem(where, problem.what, problem.remedy))
    meant = {(*where[:-1], problem.remedy) for where, problem in first.items() if problem.what == _UNKNOWN}
    return [
        problem
        for where, problem in first.items()
        if not any(other[: len(where)] == where and other != where for other in first)
        and (problem.what != _MISSING or (*where[:-1], near(str(where[-1]), [str(where[-1])])) not in meant)
    ]


def _sentence(problem: Problem, line: int, document: Document, source: str) -> str:
    key = f" {document.key(problem.where)}:" if problem.where else ""
    return f"{source}:{line}:{key} {problem.what}; {problem.remedy}"
