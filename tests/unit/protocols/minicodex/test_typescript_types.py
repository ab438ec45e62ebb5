"""The TypeScript types of the page are the server's, and what the server says type-checks against them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from support.minicodex import JSON
from support.minicodex_examples import DOCUMENT, EXAMPLES, shown

from tools.typescript_types import ROOT, TARGET, render

COMPILERS = [ROOT / folder / "node_modules" / "typescript" / "bin" / "tsc" for folder in ("web", "sdk/typescript")]
TSC = next((path for path in COMPILERS if path.is_file()), None)
NODE = shutil.which("node")


@pytest.mark.req("MC-UI-003")
def test_the_checked_in_types_are_those_of_the_server() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run tools/typescript_types.py and review the change"


@pytest.mark.req("MC-UI-003")
@pytest.mark.parametrize(
    "name",
    ["ClientMessage", "ServerMessage", "SessionState", "RunState", "ApprovalBrief", "TranscriptItem", "RunStatus"],
)
def test_the_types_have_the_names_of_the_document(name: str) -> None:
    assert re.search(rf"^export (type|interface) {name} ", render(), re.MULTILINE)


def recorded() -> tuple[list[JSON], list[JSON]]:
    """What clients and servers say in the conversations of the document."""
    said: tuple[list[JSON], list[JSON]] = ([], [])
    for name, make in EXAMPLES.items():
        for line in make().lines if name != "refusals" else []:
            if line[:2] in ("→ ", "← "):
                said[line[0] == "←"].append(msgspec.json.decode(line[2:]))
    return said


def compiler_says(folder: Path, program: str) -> str:
    (folder / "protocol.ts").write_text(render(), encoding="utf-8")
    (folder / "frames.ts").write_text(program, encoding="utf-8")
    assert NODE is not None
    command = [NODE, str(TSC), "--noEmit", "--strict", "--target", "es2022", "frames.ts"]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50)
    return finished.stdout + finished.stderr


@pytest.mark.req("MC-UI-003")
@pytest.mark.skipif(NODE is None or TSC is None, reason="no TypeScript compiler is installed")
def test_every_recorded_frame_type_checks(tmp_path: Path) -> None:
    commands, frames = recorded()
    assert len(frames) > 80
    program = (
        'import type { ClientMessage, ServerMessage } from "./protocol";\n'
        f"export const commands: ClientMessage[] = {msgspec.json.encode(commands).decode()};\n"
        f"export const frames: ServerMessage[] = {msgspec.json.encode(frames).decode()};\n"
    )

    assert compiler_says(tmp_path, program) == ""
    wrong = program.replace('"interval_ms":15000', '"interval_ms":"15000"')
    assert "error TS" in compiler_says(tmp_path, wrong), "the check checks"


def test_the_document_shows_what_was_recorded() -> None:
    _, frames = recorded()

    in_the_document = shown(DOCUMENT.read_text(encoding="utf-8"))
    assert all(frame in in_the_document for frame in frames)
