"""Pictures from the clipboard, with programs that stand in for those of a desktop."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from makai.cli.terminal.clipboard import clipboard_picture
from makai.core.content import Image
from makai.core.errors import InvalidRequest

PNG = b"\x89PNG\r\n\x1a\n1234"


def desktop(folder: Path, program: str, writes: bytes) -> dict[str, str]:
    """An environment in which `program` writes these bytes, and its arguments beside them."""
    folder.mkdir(exist_ok=True)
    (folder / "clipboard").write_bytes(writes)
    path = folder / program
    path.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/arguments\nwhile read -r line; do :; done\n/bin/cat {folder}/clipboard\n'
    )
    path.chmod(0o700)
    return {"PATH": str(folder)}


@pytest.mark.parametrize(
    ("program", "variable", "arguments"),
    [
        ("wl-paste", "WAYLAND_DISPLAY", "--no-newline --type image/png\n"),
        ("xclip", "DISPLAY", "-selection clipboard -t image/png -o\n"),
        ("pngpaste", "", "-\n"),
    ],
)
async def test_the_program_of_the_desktop_is_asked(tmp_path: Path, program: str, variable: str, arguments: str) -> None:
    environ = desktop(tmp_path / "bin", program, PNG) | ({variable: ":0"} if variable else {})

    picture = await clipboard_picture(environ, str(tmp_path / "project"))

    assert picture == Image(data=base64.b64encode(PNG).decode(), mime_type="image/png")
    assert (tmp_path / "bin" / "arguments").read_text() == arguments


@pytest.mark.parametrize(
    ("writes", "display", "message"),
    [
        (b"text", {"DISPLAY": ":0"}, "the clipboard holds no picture"),
        (PNG, {}, "neither wl-paste"),
        (PNG + bytes(6 * 1024**2), {"DISPLAY": ":0"}, "more than 5 MB"),
    ],
)
async def test_what_cannot_be_pasted_is_explained(
    tmp_path: Path, writes: bytes, display: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        await clipboard_picture(desktop(tmp_path, "xclip", writes) | display, str(tmp_path / "project"))


async def test_no_program_of_the_sessions_folder_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = desktop(tmp_path / "bin", "xclip", PNG) | {"DISPLAY": ":0"}
    monkeypatch.chdir(tmp_path)

    for path in (environ["PATH"], "bin", f":{tmp_path}/./bin"):
        with pytest.raises(InvalidRequest, match="neither wl-paste"):
            await clipboard_picture({**environ, "PATH": path}, str(tmp_path))

    assert not (tmp_path / "bin/arguments").exists()
