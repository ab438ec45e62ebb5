"""The TypeScript SDK checks arguments and answers as the server does: both have the verdicts of one list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from makai.agent.tool_io import compiled_schema

VECTORS = Path(__file__).resolve().parents[3] / "sdk" / "typescript" / "test" / "json_schema_vectors.json"


def test_the_server_gives_the_verdicts_that_the_typescript_sdk_gives() -> None:
    vectors = msgspec.json.decode(VECTORS.read_bytes(), type=list[tuple[Any, Any, bool]])

    assert len(vectors) > 80
    assert [(schema, value, fits(schema, value)) for schema, value, _ in vectors] == vectors


def fits(schema: Any, value: Any) -> bool:
    if isinstance(schema, bool):  # the server takes only objects as schemas
        schema, value = {"properties": {"it": schema}}, {"it": value}
    return compiled_schema(msgspec.json.encode(schema).decode(), "the schema", "refused").is_valid(value)
