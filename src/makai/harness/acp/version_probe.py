"""Asks an agent's program for its version before a driver uses it, and compares it with the versions that are known.

A program that is too old is refused with the way to install another one. A newer one than was tried is used, with a
notice: what it says beyond the driver's knowledge is passed over.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple

from makai.aio.child_process import OversizedLine
from makai.core.errors import AgentFailed, NotSupported
from makai.core.visible_text import one_line
from makai.harness.acp.connection import AgentTransport
from makai.harness.acp.known_agents import AgentSpec
from makai.harness.acp.peer import StartTransport

PROBE_S: Final = 20.0
"""A cold start of a large program on a busy machine takes seconds."""
_MAX_LINES: Final = 20
_MAX_LINE_BYTES: Final = 10_000
_VERSION: Final = re.compile(r"(?<![\w.])(\d{1,9})\.(\d{1,9})\.(\d{1,12})(?!\.?\d)[\w.+-]*")


class ProbedVersion(NamedTuple):
    version: str
    notice: str
    """What a person should know about this version; empty when it was tried."""


async def probe_version(
    spec: AgentSpec, program: str, env: dict[str, str], cwd: str, start: StartTransport
) -> ProbedVersion:
    """The version that `program --version` says. `NotSupported` for one that is too old, `AgentFailed` for a program
    that says none in time."""
    transport = await start([program, "--version"], env, cwd)
    said: list[str] = []
    try:
        async with asyncio.timeout(PROBE_S):
            version = await _version(transport, said)
    except TimeoutError:
        raise AgentFailed(f"{spec.title} did not say its version within {PROBE_S:g} s.") from None
    finally:
        await transport.stop()
    if version is None:
        words = one_line(" ".join(said) or transport.stderr_tail, 200)
        hint = f"Install it again: {spec.install}" if spec.install else None
        raise AgentFailed(f"{spec.title} did not say its version" + (f": {words}" if words else "."), hint=hint)
    return ProbedVersion(version, judged_version(spec, version))


def judged_version(spec: AgentSpec, version: str) -> str:
    """A notice about a version that was not tried; "" for one that was. `NotSupported` for one that is too old."""
    if spec.tested is None:
        return ""
    oldest, newest = spec.tested
    if _numbers(version) < _numbers(oldest):
        raise NotSupported(
            f"{spec.title} {version} is too old; makai needs {oldest} or newer.",
            hint=f"Install another version of it: {spec.install}" if spec.install else None,
        )
    if _numbers(version) > _numbers(newest):
        return f"{spec.title} {version} is newer than {newest}, the newest version that makai was tried with."
    return ""


async def _version(transport: AgentTransport, said: list[str]) -> str | None:
    async for line in transport.lines(_MAX_LINE_BYTES):
        text = "" if isinstance(line, OversizedLine) else line.decode(errors="replace")
        if (found := _VERSION.search(text)) is not None:
            return found[0]
        said.append(text)
        if len(said) >= _MAX_LINES:
            break
    else:
        await transport.wait_for_errors(1.0)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    found = _VERSION.search(version)
    return tuple(map(int, found.groups())) if found is not None else ()
