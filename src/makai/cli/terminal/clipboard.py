"""A picture from the clipboard of the user's desktop, by the program that the desktop has for it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Final

from makai.aio.child_process import ChildProcess
from makai.core.content import Image
from makai.core.errors import InvalidRequest
from makai.core.programs import find_program, trusted_environment
from makai.tools.attachments import MAX_PICTURE_BYTES, picture_type

DEADLINE_S: Final = 5.0
_PROGRAMS: Final = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--no-newline", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-t", "image/png", "-o")),
    ("", ("pngpaste", "-")),
)
"""The variable that a desktop sets, and the command that writes the picture to its output."""
_VARIABLES: Final = ("DISPLAY", "HOME", "LANG", "PATH", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR")
_OTHERWISE: Final = "Drag the file onto the terminal, or name it with @path."


async def clipboard_picture(environ: Mapping[str, str], folder: str) -> Image:
    """Raises `InvalidRequest` when there is none, or no program to ask. None is taken from `folder`, the session's."""
    known = trusted_environment({name: environ[name] for name in _VARIABLES if name in environ}, [folder])
    for variable, command in _PROGRAMS:
        wanted = not variable or environ.get(variable)
        if wanted and (program := find_program(command[0], known.get("PATH", ""), [folder])):
            data = await _output([program, *command[1:]], known)
            break
    else:
        raise InvalidRequest(
            "pictures cannot be pasted: neither wl-paste (Wayland) nor xclip (X11) is usable here.", hint=_OTHERWISE
        )
    if len(data) > MAX_PICTURE_BYTES:
        raise InvalidRequest(f"the picture has more than {MAX_PICTURE_BYTES // 1024**2} MB.")
    if (kind := picture_type(data)) is None:
        raise InvalidRequest("the clipboard holds no picture.", hint=_OTHERWISE)
    return Image(data=base64.b64encode(data).decode("ascii"), mime_type=kind)


async def _output(argv: list[str], environ: Mapping[str, str]) -> bytes:
    """What it writes, up to a little more than a picture may have; b"" when it takes too long."""
    data = bytearray()
    try:
        child = await ChildProcess.start(argv, env=environ, takes_input=False)
    except OSError:
        return b""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while len(data) <= MAX_PICTURE_BYTES and (chunk := await child.read()):
                data += chunk
    except TimeoutError:
        return b""
    finally:
        await child.stop()
    return bytes(data)
