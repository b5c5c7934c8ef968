"""The JSON Schema of a space, for editors that complete and check YAML.

``python -m search_spaces.schema > search_spaces/space.schema.json`` writes it anew; a test says when that is due.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from search_spaces.space import Space

SCHEMA_FILE = Path(__file__).with_name("space.schema.json")


def json_schema() -> dict[str, Any]:
    """The schema, as `Space` has it. What must fit together across a file is checked by the reader alone."""
    schema = Space.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "quietlane search space"}


def text() -> str:
    """The schema as it lies in the repository."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
