"""Writes `schema/events.json`: the JSON Schema of messages and stream events.

In: the Structs of `makai.core`. Out: one file, checked in so that a change of the wire shows up in review, and
compared with the types by `tests/house/test_schema.py`. Nothing here describes a field; the types do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from makai.core.messages import Message
from makai.core.stream_events import StreamEvent

ROOT = Path(__file__).resolve().parent.parent
EVENTS_FILE = ROOT / "schema" / "events.json"


def events_schema() -> dict[str, Any]:
    """One JSON Schema document; `$defs/StreamEvent` and `$defs/Message` are its entry points."""
    (stream_event, message), components = msgspec.json.schema_components(
        [StreamEvent, Message], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "makai messages and stream events",
        "$ref": "#/$defs/StreamEvent",
        "$defs": {"StreamEvent": stream_event, "Message": message, **dict(sorted(components.items()))},
    }


def render(schema: dict[str, Any]) -> str:
    """The file's text."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the file."""
    EVENTS_FILE.parent.mkdir(exist_ok=True)
    EVENTS_FILE.write_text(render(events_schema()), encoding="utf-8")
    print(f"wrote {EVENTS_FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
