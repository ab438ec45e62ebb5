"""`OPENAI_API_KEY=… makai run`, and every other face, while a process with another environment owns the sessions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest
from support.acp_client import child
from support.cli import DEADLINE_S, SOURCES, Cli, Finished
from support.upstream import Request, Upstream, answers, chat_stream, head, refuses, upstream

MODEL = "openai/openai-completions@gpt-test"
OWNERS_KEY, CALLERS_KEY = "sk-owner-0123456789", "sk-caller-c4n4ry-9876543210"


def at(server: Upstream, key: str) -> dict[str, str]:
    return {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": f"{server.url}/v1"}


def keys(server: Upstream) -> list[str]:
    """Of the questions to models; an editor's list of models is asked for too, by the process of the editor."""
    return [request.headers["authorization"] for request in server.requests if request.method == "POST"]


def files_with(folder: Path, text: str) -> list[str]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    assert paths
    return [str(path.relative_to(folder)) for path in paths if text.encode() in path.read_bytes()]


@pytest.mark.req("DM-ENDP-010")
@pytest.mark.sqlite_file("looks for what was said in the file")
@pytest.mark.parametrize("owner_has_a_key", [True, False])
async def test_the_key_of_the_caller_reaches_its_server_and_stays_in_the_memory_of_the_owner(
    home: Path, project: Path, owner_has_a_key: bool
) -> None:
    makai = Cli(home)
    async with (
        upstream(answers(chat_stream("From", " the owner's"))) as owners,
        upstream(answers(chat_stream("From", " the caller's"))) as callers,
        makai.started("serve", "--port", "0", environ=at(owners, OWNERS_KEY) if owner_has_a_key else {}) as owner,
    ):
        assert owner.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            begun = await owner.stdout.readline()
        command = ("run", "-m", MODEL, "--cwd", str(project), "Hi")
        answered = await makai(*command, environ=at(callers, CALLERS_KEY))
        without = await makai(*command)
        kept = files_with(home, CALLERS_KEY)
        owner.terminate()
        async with asyncio.timeout(DEADLINE_S):
            out, err = await owner.communicate()
        kept += files_with(home, CALLERS_KEY)

    assert answered == Finished(0, "From the caller's\n", "")
    assert keys(callers) == [f"Bearer {CALLERS_KEY}"]
    # The key belonged to that run alone: a caller without one gets the owner's, or none.
    assert keys(owners) == ([f"Bearer {OWNERS_KEY}"] if owner_has_a_key else [])
    assert (without.code == 0, without.out) == ((True, "From the owner's\n") if owner_has_a_key else (False, ""))
    assert kept == []
    assert files_with(home, "From the caller's") != []
    assert CALLERS_KEY.encode() not in begun + out + err
    assert b"127.0.0.1" in begun


Face: TypeAlias = Callable[[Cli, Path, dict[str, str]], Awaitable[str]]
"""Asks with an environment; returns everything that its user can see."""


async def run(makai: Cli, project: Path, environ: dict[str, str]) -> str:
    done = await makai("run", "-m", MODEL, "--cwd", str(project), "Hi", environ=environ)
    return done.out + done.err


async def chat(makai: Cli, project: Path, environ: dict[str, str]) -> str:
    done = await makai("chat", "-m", MODEL, "--cwd", str(project), stdin=b"Hi\n", environ=environ)
    return done.out + done.err


async def acp(makai: Cli, project: Path, environ: dict[str, str]) -> str:
    at_home = {**environ, "MAKAI_HOME": str(makai.home)}
    async with child(makai.home, "-m", MODEL, environ=at_home) as editor:
        await editor.initialize()
        await editor.run(await editor.new_session(project), "Hi")
        return editor.text()


_SDK = """
import asyncio, makai
async def main():
    async with makai.connect() as client:
        messages = [{"role": "user", "content": "Hi"}]
        print(await client.agent.run(model_ref=MODEL, messages=messages))
asyncio.run(main())
"""
_HARNESS = """
import asyncio, sys
from makai.client.harness.opening import open_harness
from makai.harness import Spec
async def main():
    async with open_harness("native", keep=True) as harness:
        handle = await harness.spawn(Spec(prompt="Hi", model=MODEL, cwd=sys.argv[1]))
        print([event async for event in handle])
asyncio.run(main())
"""


async def program(text: str, makai: Cli, project: Path, environ: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", text.replace("MODEL", repr(MODEL)), str(project)),
        env={**makai.environment(environ), "PYTHONPATH": str(SOURCES)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(DEADLINE_S):
        out, _ = await process.communicate()
    return out.decode()


async def sdk(makai: Cli, project: Path, environ: dict[str, str]) -> str:
    return await program(_SDK, makai, project, environ)


async def harness(makai: Cli, project: Path, environ: dict[str, str]) -> str:
    return await program(_HARNESS, makai, project, environ)


FACES: tuple[Face, ...] = (run, chat, acp, sdk, harness)


async def metrics_of(address: str, home: Path) -> str:
    url, token = urlsplit(address), (home / "server-token").read_text(encoding="utf-8").strip()
    asked = HttpRequest(f"http://{url.netloc}/metrics", headers={"Authorization": f"Bearer {token}"})
    return await asyncio.to_thread(lambda: urlopen(asked, timeout=DEADLINE_S).read().decode())


@pytest.mark.req("DM-ENDP-010")
async def test_callers_of_every_face_at_once_each_use_their_own_key_and_no_other_reader_sees_it(
    home: Path, project: Path
) -> None:
    makai = Cli(home)
    all_are_here = asyncio.Barrier(len(FACES))

    async def together(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "POST":
            await all_are_here.wait()
        key = request.headers["authorization"].removeprefix("Bearer ")
        writer.write(head() + chat_stream(f"for {key[-1]}{key[-1]}{key[-1]}"))

    async with upstream(together) as server, makai.started("serve", "--port", "0") as owner:
        assert owner.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            address = (await owner.stdout.readline()).decode().split()[-1]
        environs = [at(server, f"{CALLERS_KEY}{number}") for number in range(len(FACES))]
        shown = await asyncio.gather(
            *(face(makai, project, environ) for face, environ in zip(FACES, environs, strict=True))
        )
        metrics = await metrics_of(address, home)
        kept = files_with(home, CALLERS_KEY)
        owner.terminate()
        async with asyncio.timeout(DEADLINE_S):
            out, err = await owner.communicate()

    assert sorted(keys(server)) == [f"Bearer {CALLERS_KEY}{number}" for number in range(len(FACES))]
    for number, text in enumerate(shown):
        assert f"for {number}{number}{number}" in text
        assert CALLERS_KEY not in text
    assert "makai_" in metrics
    assert [CALLERS_KEY in text for text in (metrics, out.decode(), err.decode())] == [False] * 3
    assert kept + files_with(home, CALLERS_KEY) == []


@pytest.mark.req("DM-ENDP-010")
@pytest.mark.parametrize("face", [run, chat, sdk], ids=lambda face: face.__name__)
async def test_a_provider_that_repeats_the_refused_key_shows_it_to_no_reader(
    home: Path, project: Path, face: Face
) -> None:
    makai = Cli(home)
    refusal = f'{{"error": {{"message": "Incorrect API key provided: {CALLERS_KEY}"}}}}'
    async with upstream(refuses(401, refusal.encode())) as server, makai.started("serve", "--port", "0") as owner:
        assert owner.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            await owner.stdout.readline()
        shown = await face(makai, project, at(server, CALLERS_KEY))
        owner.terminate()
        async with asyncio.timeout(DEADLINE_S):
            out, err = await owner.communicate()

    assert keys(server) == [f"Bearer {CALLERS_KEY}"]
    assert "openai" in shown.lower()
    assert [CALLERS_KEY in text for text in (shown, out.decode(), err.decode())] == [False] * 3
    assert files_with(home, CALLERS_KEY) == []


@pytest.mark.req("DM-SPEC-011")
@pytest.mark.parametrize("who_blocks", ["owner", "caller"])
async def test_a_key_that_either_process_blocks_does_not_reach_the_agent(
    home: Path, project: Path, tmp_path: Path, who_blocks: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "amp").write_text('#!/bin/sh\nenv >>"$HOME/seen"\nexit 1\n')
    (programs / "amp").chmod(0o755)
    makai, path = Cli(home), {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)}
    blocks = {"AGENT_ENV_BLOCKLIST": "AMP_API_KEY"}
    owners, callers = (blocks, {}) if who_blocks == "owner" else ({"AMP_API_KEY": OWNERS_KEY}, blocks)
    async with makai.started("serve", "--port", "0", environ=path | owners) as owner:
        assert owner.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            await owner.stdout.readline()
        command = ("run", "-a", "amp", "--cwd", str(project), "Hi")
        await makai(*command, environ=path | {"AMP_API_KEY": CALLERS_KEY, "AMP_URL": "https://amp.test"} | callers)
        owner.terminate()
        await owner.communicate()

    seen = (tmp_path / "seen").read_text()
    assert "AMP_URL=https://amp.test" in seen
    assert "AMP_API_KEY" not in seen


async def test_a_scenario_that_the_owner_does_not_have_names_the_process_that_answers(
    home: Path, project: Path, tmp_path: Path
) -> None:
    makai = Cli(home)
    (tmp_path / "scenario.txt").write_text("echo")
    environ = {"MAKAI_SCENARIO": str(tmp_path / "scenario.txt")}
    async with makai.serving() as (owner, _):
        refused = await makai("run", "-m", "scripted/scenario", "--cwd", str(project), "Hi", environ=environ)

    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "makai: model not found: scripted has no 'scenario'.\n"
        f"       MAKAI_SCENARIO is not set in process {owner.pid}, which answers. "
        "Start that process with it, or use another MAKAI_HOME.\n"
    )
