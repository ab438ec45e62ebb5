"""The matrix of harnesses as a Markdown page and as JSON: `makai harness matrix`, and the pages below `docs/`.

Pure: no time, no environment, so that a test can compare the pages byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from makai.harness.contract.spec import Spec
from makai.harness.endpoints.companies import endpoint_manifests
from makai.harness.manifests import DECLARATIONS
from makai.harness.matrix import build_matrix

FLAGS: Final = {
    "inject": "a message can be sent into a running session",
    "resume": "an interrupted session can be continued",
    "tools": "tools of MCP servers can be used",
    "mcp": "MCP servers of the spec are configured",
    "allowedToolsList": "the list of allowed tools is honoured",
    "subagents": "events of sub-agents are reported",
    "reasoningEffort": "the effort level is honoured",
    "oneShot": "a request can be completed without a session (`makai complete`)",
    "nativeJsonMode": "a response schema is given to the agent or model, not only asked for in the prompt",
}


def matrix_markdown() -> str:
    parts = (
        "# Harnesses, endpoints and what works together",
        "<!-- `make schema` writes this page from the tables in src/makai/harness; a test compares it. -->",
        "The same as data: [harness-matrix.json](harness-matrix.json).",
        *("## Harnesses", _harnesses(), "\n".join(f"- **{name}**: {text}" for name, text in FLAGS.items())),
        *("## Fields of a spec", "Fields without a mark are ignored without an error.", _fields()),
        *("## Endpoints", "Variables are names; values never appear in a manifest.", _endpoints()),
        "## What works together",
        "stable: supported. beta: documented by the vendor, not tried. experimental: may not work. Tried: the real "
        "program was run this way, against a scripted or local model server. Name: the provider name of this row.",
        _cells(),
    )
    return "\n\n".join(parts) + "\n"


def matrix_json() -> str:
    return json.dumps(msgspec.to_builtins(build_matrix()), indent=2, ensure_ascii=False) + "\n"


def _harnesses() -> str:
    rows = []
    for manifest in build_matrix().harnesses:
        caps = msgspec.to_builtins(manifest.caps)
        flags = [_mark(caps[flag]) for flag in FLAGS]
        rows.append(
            [f"`{manifest.name}`", manifest.human_label, *flags, manifest.caps.transport, *_lists(manifest.caps)]
        )
    return _table(["name", "label", *FLAGS, "transport", "drives", "hosts"], rows)


def _lists(caps: msgspec.Struct) -> list[str]:
    return [", ".join(getattr(caps, name)) for name in ("drives", "drives_hosts")]


def _fields() -> str:
    names = sorted(DECLARATIONS)
    honoured = {name: DECLARATIONS[name].honoured_fields() for name in names}
    rows = [[f"`{field}`", *(_mark(field in honoured[name]) for name in names)] for field in Spec.__struct_fields__]
    return _table(["field", *names], rows)


def _endpoints() -> str:
    rows = []
    for company, manifest in endpoint_manifests().items():
        for desc in manifest.hosts:
            variables = ", ".join(f"`{name}`" for name in desc.env_keys)
            address = f"`{desc.base_url_tmpl}`" if desc.base_url_tmpl else ""
            logins = ", ".join(desc.auth_modes)
            rows.append([f"`{company}`", desc.host, desc.protocol, logins, desc.cost_model, address, variables])
    return _table(["company", "host", "protocol", "logins", "cost", "address", "variables"], rows)


def _cells() -> str:
    rows = [
        [
            *(f"`{cell.harness}`", f"`{cell.company}`", cell.host, cell.protocol, ", ".join(cell.auth_modes)),
            *(cell.structured_via, cell.stability, _mark(cell.smoked), f"`{cell.alias}`" if cell.alias else ""),
        ]
        for cell in build_matrix().cells
    ]
    header = ["harness", "company", "host", "protocol", "logins", "structured output", "stability", "tried", "name"]
    return _table(header, rows)


def _mark(is_true: bool) -> str:
    return "yes" if is_true else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
