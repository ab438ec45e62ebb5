"""Named hosts in both sandboxes: programs that people use reach them, and nothing reaches anything else."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.egress import HOST, ProxiedCommands, package_server
from support.machine import open_descriptors
from support.orphan_trials import Silent, text_of
from support.places import folder_outside_tmp

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.tools.commands import LocalCommands
from makai.tools.sandbox.detect import Detection, SandboxBackend, try_bubblewrap, try_landlock
from makai.tools.sandbox.policy import SandboxPolicy
from makai.tools.sandbox.proxy_clients import proxy_environment
from makai.tools.shell import ShellTool
from makai.tools.workspace import Workspace

BACKENDS: dict[str, Callable[[], SandboxBackend | str]] = {"bubblewrap": try_bubblewrap, "landlock": try_landlock}
PROGRAMS = {
    "curl": ("curl -sS URL/page", "hello from the page"),
    "wget": ("wget -qO- --ca-certificate=$SSL_CERT_FILE URL/page", "hello from the page"),
    "python3": (
        "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read())' URL/page",
        "hello from the page",
    ),
    "git": ("git clone -q URL/repo/.git cloned && cat cloned/file", "from the repository"),
    "pip": (
        "python3 -m pip download -q --no-deps --disable-pip-version-check --trusted-host HOST "
        "--index-url URL/simple demo && ls",
        "demo-1.0-py3-none-any.whl",
    ),
    "npm": (
        "mkdir p && cd p && echo {} > package.json && npm install --no-audit --no-fund --registry URL/ demo >log 2>&1"
        " && cat node_modules/demo/package.json",
        '{"name": "demo", "version": "1.0.0"}',
    ),
}


@pytest.fixture(params=sorted(BACKENDS))
def sandbox(request: pytest.FixtureRequest) -> Detection:
    found = BACKENDS[request.param]()
    if isinstance(found, str):
        pytest.skip(found)
    return Detection(backend=found)


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_outside_tmp() as base:
        yield base


@pytest.mark.parametrize("tls", [True, False], ids=["https", "http"])
@pytest.mark.parametrize("program", PROGRAMS)
async def test_programs_reach_a_named_host(sandbox: Detection, folder: Path, program: str, tls: bool) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    script, expected = PROGRAMS[program]
    with package_server(folder, tls=tls) as (port, environ):
        url = f"{'https' if tls else 'http'}://{HOST}:{port}"
        commands = ProxiedCommands(sandbox, folder, environ)
        done = await commands.run(script.replace("URL", url).replace("HOST", HOST), f"{HOST}:{port}")
    assert (done.exit_code, done.notice) == (0, ""), done.output
    assert expected in done.output


SETTINGS = {
    ".gitconfig": "[http]\n\tproxy = http://127.0.0.1:9\n",
    ".config/pip/pip.conf": "[global]\nproxy = http://127.0.0.1:9\n",
    "p/.npmrc": "proxy=http://127.0.0.1:9\nhttps-proxy=http://127.0.0.1:9\n",
}


@pytest.mark.parametrize("program", ["git", "pip", "npm"])
async def test_a_proxy_in_the_settings_of_a_program_does_not_come_first(folder: Path, program: str) -> None:
    """The proxy of the user's network is behind makai's, and cannot be reached from the sandbox."""
    found = try_bubblewrap()
    if isinstance(found, str) or shutil.which(program) is None:
        pytest.skip(f"bubblewrap or {program} is missing")
    script, expected = PROGRAMS[program]
    with package_server(folder, tls=True) as (port, environ):
        commands = ProxiedCommands(Detection(backend=found), folder, environ)
        for name, text in SETTINGS.items():
            path = folder / "workspace/work" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        script = script.replace("mkdir p", "mkdir -p p").replace("URL", f"https://{HOST}:{port}").replace("HOST", HOST)
        done = await commands.run(script, f"{HOST}:{port}")
    assert (done.exit_code, done.notice) == (0, ""), done.output
    assert expected in done.output


def test_git_keeps_its_other_settings_of_the_environment() -> None:
    """makai itself gives git settings in this way."""
    before = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "a.b",
        "GIT_CONFIG_VALUE_0": "c",
        "HTTP_PROXY": "http://corp",
    }
    after = proxy_environment(before)
    assert {name: value for name, value in after.items() if name.startswith("GIT_")} == {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "a.b",
        "GIT_CONFIG_VALUE_0": "c",
        "GIT_CONFIG_KEY_1": "http.proxy",
        "GIT_CONFIG_VALUE_1": "http://127.0.0.1:3128",
    }
    assert "http://corp" not in after.values()


def python(code: str) -> str:
    return f"python3 -c 'import os, socket; {code}'"


WAYS_OUT = {
    "TCP": "exec 3<>/dev/tcp/127.0.0.1/$TCP; echo out >&3",
    "TCP by another address": "exec 3<>/dev/tcp/$OWN/$TCP; echo out >&3",
    "UDP": "echo out >/dev/udp/127.0.0.1/$UDP",
    "curl without the proxy": "curl -sS --noproxy '*' -m 5 http://127.0.0.1:$TCP/",
    "curl by address": "curl -sS -m 5 http://127.0.0.1:$TCP/",
    "the proxy by address": "curl -sS -m 5 -x $http_proxy --noproxy '' http://127.0.0.1:$TCP/",
    "CONNECT by address": "curl -sS -m 5 -p -x $http_proxy --noproxy '' http://127.0.0.1:$TCP/",
    "socks5 by address": "curl -sS -m 5 -x socks5://127.0.0.1:3128 --noproxy '' http://127.0.0.1:$TCP/",
    "socks5h to another port": "curl -sS -m 5 -x socks5h://127.0.0.1:3128 http://HOST:$TCP/",
    "another port of the host": "curl -sS -m 5 http://HOST:$TCP/",
    "another host": "curl -sS -m 5 http://elsewhere.example:$TCP/",
    "TCP fast open": python('socket.socket().sendto(b"out", 0x20000000, ("127.0.0.1", int(os.environ["TCP"])))'),
    "SCTP": python('socket.socket(2, 1, 132).connect(("127.0.0.1", int(os.environ["TCP"])))'),
    "a raw socket": python('socket.socket(2, 3, 1).sendto(b"x", ("127.0.0.1", 0))'),
    "a unix socket": python('socket.socket(1).connect(os.environ["UNIX"])'),
    "an abstract unix socket": python('socket.socket(1).connect(chr(0) + os.environ["ABSTRACT"])'),
    "DNS": "getent ahosts HOST",
    "a request behind another": "exec 3<>/dev/tcp/127.0.0.1/3128; "
    "printf 'GET http://%s/page HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' "
    "HOST:$WEB elsewhere.example:$TCP >&3; timeout 5 cat <&3",
}


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_nothing_else_is_reached(sandbox: Detection, folder: Path, way: str) -> None:
    """Every server of this machine that a way could lead to listens and must hear nothing."""
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        unix, abstract = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        unix.bind(str(folder / "unix.sock"))
        abstract.bind(f"\0makai-test-{os.getpid()}")
        heard = (tcp, udp, unix, abstract)
        for listener in heard:
            listener.setblocking(False)
            if listener.type == socket.SOCK_STREAM:
                listener.listen()
        web, _ = stack.enter_context(package_server(folder, tls=False))
        ports = {"TCP": str(tcp.getsockname()[1]), "UDP": str(udp.getsockname()[1]), "WEB": str(web)}
        names = {"UNIX": str(folder / "unix.sock"), "ABSTRACT": f"makai-test-{os.getpid()}", "OWN": "127.0.0.2"}
        commands = ProxiedCommands(sandbox, folder, ports | names)
        done = await commands.run(WAYS_OUT[way].replace("HOST", HOST), f"{HOST}:{web}")
        assert "out" not in done.output.split()
        for listener in heard:
            with pytest.raises(BlockingIOError):
                listener.recv(1) if listener is udp else listener.accept()


async def test_a_command_without_named_hosts_has_no_proxy(sandbox: Detection, folder: Path) -> None:
    """An empty list must not mean everything (CVE-2025-66479): it asks for no channel, so none is given."""
    async with asyncio.timeout(30), ProxiedCommands(sandbox, folder).started("true") as (child, _):
        assert await child.wait() != 0


async def test_a_command_inherits_nothing_of_the_way_to_the_proxy(sandbox: Detection, folder: Path) -> None:
    done = await ProxiedCommands(sandbox, folder).run("echo /proc/self/fd/*", "a.example")
    assert done.output.split() == [f"/proc/self/fd/{number}" for number in (0, 1, 2, 3)]  # the last is the folder


async def test_a_refused_host_is_named_in_a_notice(sandbox: Detection, folder: Path) -> None:
    done = await ProxiedCommands(sandbox, folder).run(
        "curl -sS http://b.example/; curl -sS https://c.example/", "a.example"
    )
    assert (
        'b.example:80 is not among the allowed hosts (a.example). Ask for it with network=["b.example"].' in done.output
    )
    assert "response 403" in done.output
    hosts = '"a.example", "b.example", "c.example"'
    assert done.notice == (
        f"[blocked: b.example:80, c.example:443 are not among the allowed hosts; ask with network=[{hosts}]]\n"
    )


async def test_the_end_of_a_command_ends_its_connections_and_leaves_no_descriptor(
    sandbox: Detection, folder: Path
) -> None:
    ended = asyncio.Event()
    reached = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        try:
            await reader.read()
        finally:
            ended.set()
            writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    commands = ProxiedCommands(sandbox, folder)
    await commands.run("true", "a.example")  # what is opened once is open now
    before = open_descriptors()
    script = f"curl -sSN -p -x $http_proxy http://a.example:{port}/ & sleep 600"
    async with asyncio.timeout(30), server:
        async with commands.started(script, f"a.example:{port}") as (child, _):
            await reached.wait()
            child.kill()
            await child.wait()
            await ended.wait()
        server.close()
    assert open_descriptors() - before == set()
    assert [task.get_name() for task in asyncio.all_tasks() if "command" in task.get_name()] == []


async def test_many_connections_at_once_are_served(sandbox: Detection, folder: Path) -> None:
    with package_server(folder, tls=False) as (port, environ):
        script = f"seq 100 | xargs -P 100 -I N curl -sS http://{HOST}:{port}/page | sort | uniq -c"
        done = await ProxiedCommands(sandbox, folder, environ).run(script, f"{HOST}:{port}")
    assert done.output.split() == ["100", "hello", "from", "the", "page"]


async def test_a_sandbox_that_cannot_be_made_ends_at_once(folder: Path) -> None:
    found = try_bubblewrap()
    if isinstance(found, str):
        pytest.skip(found)
    commands = ProxiedCommands(Detection(backend=found), folder, gone=folder / "gone")
    async with asyncio.timeout(10):
        done = await commands.run("true", "a.example")
    assert done.exit_code != 0
    assert "gone" in done.output


async def test_the_shell_tool_reaches_named_hosts_and_says_which_others_were_asked_for(
    sandbox: Detection, folder: Path
) -> None:
    """As a model calls it. The user's own proxy stands for the internet, since tests have none."""
    asked: list[bytes] = []

    async def corporate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello from the internet\n")
        writer.close()

    @contextmanager
    def confined(
        argv: Sequence[str], opened: Confinement = SESSION_SANDBOX, *, read_only: bool = False
    ) -> Iterator[Sequence[str]]:
        policy = SandboxPolicy(level="workspace-write", roots=(str(folder / "work"),), hosts=opened.network)
        with sandbox.holding(policy):
            yield sandbox.wrap(policy, argv)

    (folder / "work").mkdir()
    workspace = Workspace([folder / "work"])
    before = open_descriptors()
    async with asyncio.timeout(60), await asyncio.start_server(corporate, "127.0.0.1", 0) as server:
        environ = {"PATH": os.environ["PATH"], "http_proxy": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
        commands = LocalCommands(workspace, confined=confined, resolved=lambda wanted, _: wanted, environ=environ)
        shell = ShellTool(workspace, commands, environ=environ, spill_directory=folder / "spilled")
        call = {"command": "curl -sS http://a.makai.invalid/x; curl -sS -o /dev/null http://b.makai.invalid/"}
        outcome = await shell.run({**call, "network": ["a.makai.invalid"]}, Silent())
        without = await shell.run(call, Silent())
    hint = '; ask with network=["a.makai.invalid", "b.makai.invalid"]]'
    assert text_of(outcome) == (
        f"hello from the internet\n[blocked: b.makai.invalid:80 is not among the allowed hosts{hint}"
    )
    assert asked == [b"CONNECT a.makai.invalid:80 HTTP/1.1", b"GET /x HTTP/1.1"]
    assert "curl: (" in text_of(without)
    assert "internet" not in text_of(without)
    assert len(open_descriptors() - before) <= 1  # the lookup threads keep none; the loop may keep one
