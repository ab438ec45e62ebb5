"""What the doctor finds and says."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from support.upstream import answers, upstream

from makai.catalog.vendor_table import builtin_vendors
from makai.cli import checkup
from makai.cli.checkup import Checkup, HomeCheck, ProviderCheck, SandboxCheck, check_home, checkup_text, next_steps
from makai.cli.machine_checks import MachineCheck
from makai.cli.provider_access import ProviderAccess, Reachability, access_of, reach_all
from makai.harness.acp.known_agents import OfferedAgent, known_agents


def provider(id: str, status: str = "", *, reach: Reachability | None = None, **more: Any) -> ProviderCheck:
    access = ProviderAccess(provider=id, name=id, status=status, **({"ready": True} | more))
    return ProviderCheck(access=access, reach=reach)


PROXY = {"base_url": "https://proxy.test/v1", "base_url_variable": "OPENAI_BASE_URL", "key_variable": "OPENAI_API_KEY"}
UNREACHED = Reachability(problem="connection refused")
LOCAL = provider("local", "ready (weights installed)", default_model="smollm2-135m")
NO_LOCAL = provider("local", "run: pull", ready=False)
NO_KEY = provider("openai", "set OPENAI_API_KEY", ready=False)
KEY = provider("openai", "ready (OPENAI_API_KEY)", reach=Reachability(), **PROXY)
UNREACHABLE = msgspec.structs.replace(KEY, reach=UNREACHED)
OLLAMA = provider("ollama", reach=UNREACHED, base_url="http://127.0.0.1:11434", is_own_server=True)
HEALTHY = Checkup(
    makai="1.2.3",
    python="3.12.1 (/usr/bin/python)",
    platform="Linux x86_64",
    uvloop="0.21.0",
    xllamacpp="2026.10",
    home=HomeCheck(path="/home/ada/.makai", exists=True, mode="0700"),
    weights=checkup.WeightsCheck(model="SmolLM2", path="/home/ada/.makai/models/m.gguf"),
    sandbox=SandboxCheck(works=True, level="workspace-write", text="bubblewrap 0.8.0. Not confined: memory"),
    providers=(KEY, OLLAMA, LOCAL),
    default_model="openai/gpt",
    default_reason="OPENAI_API_KEY is set",
    usable=True,
)
NAKED = msgspec.structs.replace(
    HEALTHY,
    uvloop=None,
    xllamacpp=None,
    home=HomeCheck(path="/home/ada/.makai", exists=False),
    weights=checkup.WeightsCheck(model="SmolLM2"),
    providers=(NO_KEY, OLLAMA, NO_LOCAL),
    default_model="local/smollm2-135m",
    usable=False,
)


def test_a_healthy_machine_in_words() -> None:
    assert checkup_text(HEALTHY) == [
        "This machine",
        "ok makai       1.2.3",
        "ok python      3.12.1 (/usr/bin/python), Linux x86_64",
        "ok uvloop      0.21.0",
        "ok xllamacpp   2026.10",
        "ok weights     SmolLM2, /home/ada/.makai/models/m.gguf",
        "ok MAKAI_HOME  /home/ada/.makai (0700)",
        "ok sandbox     workspace-write, bubblewrap 0.8.0. Not confined: memory",
        "",
        "Providers",
        "ok openai             OPENAI_API_KEY is set, OPENAI_BASE_URL=https://proxy.test/v1, reachable",
        "-- ollama             not running at http://127.0.0.1:11434",
        "ok local              ready (weights installed)",
        "",
        "Default model",
        "   openai/gpt, because OPENAI_API_KEY is set",
        "",
        "What to do next",
        '   makai run "Say hello"           or just `makai` to chat',
    ]


def test_other_agents_are_listed_with_where_they_are_or_how_to_install_them() -> None:
    gemini = OfferedAgent(name="gemini", harness="acp:gemini", title="Gemini CLI", program="/bin/gemini", install="npm")
    codex = OfferedAgent(name="codex", harness="acp:codex", title="Codex", program="", install="npm install -g codex")
    mine = OfferedAgent(name="mine", harness="acp:mine", title="Mine", program="", install="")
    text = checkup_text(msgspec.structs.replace(HEALTHY, agents=(gemini, codex, mine)))

    start = text.index("Other agents, for `makai -a NAME` and the page")
    assert text[start + 1 : start + 4] == [
        "ok gemini      Gemini CLI, /bin/gemini",
        "-- codex       Codex, not installed: npm install -g codex",
        "-- mine        Mine, not installed",
    ]


def test_long_names_of_agents_do_not_break_the_column() -> None:
    names = ("claude-agent-acp", "amp")
    agents = tuple(OfferedAgent(name=each, harness=each, title="It", program="", install="npm") for each in names)
    text = checkup_text(msgspec.structs.replace(HEALTHY, agents=agents))

    start = text.index("Other agents, for `makai -a NAME` and the page")
    assert text[start + 1 : start + 3] == [
        "-- claude-agent-acp It, not installed: npm",
        "-- amp              It, not installed: npm",
    ]


def test_a_text_of_several_lines_stays_in_its_column() -> None:
    check = MachineCheck(name="MCP", state="good", text="a: ready\nb: ready")
    lines = checkup_text(msgspec.structs.replace(HEALTHY, checks=(check,)))

    assert "ok MCP         a: ready\n               b: ready" in lines


def test_a_naked_machine_is_told_two_ways_to_a_model() -> None:
    assert next_steps(NAKED) == [
        "pip install 'makai[local]'      to run a model on this machine",
        "makai models pull smollm2       a small model for this machine (93 MB, no account needed)",
        "makai auth login anthropic      or another provider above, for a capable model",
    ]


@pytest.mark.proof("B3")
def test_a_machine_without_a_sandbox_is_told_so_and_what_to_install() -> None:
    broken = SandboxCheck(works=False, level="workspace-write", text="none (no bubblewrap)")
    found = msgspec.structs.replace(HEALTHY, sandbox=broken)

    assert "!! sandbox     workspace-write, none (no bubblewrap)" in checkup_text(found)
    assert next_steps(found)[0].startswith("apt install bubblewrap")


def test_when_the_default_cannot_be_reached_the_doctor_names_a_model_that_can() -> None:
    found = msgspec.structs.replace(HEALTHY, providers=(UNREACHABLE, OLLAMA, LOCAL))

    assert next_steps(found) == [
        "openai: https://proxy.test/v1 cannot be reached; check OPENAI_BASE_URL",
        'makai run -m local/smollm2-135m "Say hello"',
    ]


def test_colour_does_not_change_the_words() -> None:
    painted = checkup_text(HEALTHY, paint=click.style)

    assert [click.unstyle(line) for line in painted] == checkup_text(HEALTHY)


@pytest.mark.parametrize(("check", "usable"), [(KEY, True), (UNREACHABLE, False), (OLLAMA, False), (NO_KEY, False)])
def test_a_provider_is_usable_when_nothing_is_missing_and_it_answers(check: ProviderCheck, usable: bool) -> None:
    assert check.usable is usable


def test_a_server_of_the_user_that_nobody_tried_does_not_count_but_a_vendor_does() -> None:
    assert msgspec.structs.replace(OLLAMA, reach=None).usable is False
    assert msgspec.structs.replace(KEY, reach=None).usable is True


@pytest.mark.parametrize(
    ("mode", "problem"), [(0o700, ""), (0o755, "others may read it"), (0o777, "others may write to it")]
)
def test_a_home_that_is_open_to_others_is_a_problem(tmp_path: Path, mode: int, problem: str) -> None:
    tmp_path.chmod(mode)
    found = check_home(tmp_path)

    assert (found.exists, found.mode, found.problem.partition(":")[0]) == (True, f"{mode:04o}", problem)


def test_a_home_that_the_user_may_not_use_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)  # root may write everywhere

    assert check_home(tmp_path).problem == f"you may not read or write it: chmod 700 {tmp_path}"


def test_a_home_that_is_missing_or_a_file_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    assert check_home(tmp_path / "missing") == HomeCheck(path=str(tmp_path / "missing"), exists=False)
    assert check_home(file).problem.startswith("it is not a directory")


@pytest.mark.parametrize(
    ("vendor", "environ", "ready", "status"),
    [
        ("anthropic", {}, False, "set ANTHROPIC_API_KEY, or run: makai auth login anthropic"),
        ("anthropic", {"ANTHROPIC_API_KEY": "k"}, True, "ready (ANTHROPIC_API_KEY)"),
        ("google", {"GOOGLE_API_KEY": "k"}, True, "ready (GOOGLE_API_KEY)"),
        ("azure", {}, False, "set AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT"),
        ("azure", {"AZURE_OPENAI_API_KEY": "k"}, False, "set AZURE_OPENAI_ENDPOINT"),
        ("openai-codex", {}, False, "run: makai auth login openai-codex"),
        ("ollama", {"OLLAMA_HOST": "box"}, True, "no key needed, when it runs at http://box:11434"),
    ],
)
def test_access_is_explained(tmp_path: Path, vendor: str, environ: dict[str, str], ready: bool, status: str) -> None:
    found = access_of(builtin_vendors()[vendor], environ, tmp_path)

    assert (found.ready, found.status) == (ready, status)


def test_a_setting_that_cannot_be_used_is_a_broken_access(tmp_path: Path) -> None:
    found = access_of(builtin_vendors()["openai"], {"OPENAI_BASE_URL": "not a url"}, tmp_path)

    assert (found.ready, found.is_broken) == (False, True)
    assert found.status.startswith("OPENAI_BASE_URL: ")


async def test_reaching_tells_a_listener_from_nobody() -> None:
    async with upstream(answers(b"")) as server:
        listening = server.url
        assert await reach_all([listening, listening]) == {listening: Reachability()}

    assert await reach_all([listening]) == {listening: Reachability(problem="connection refused")}


@pytest.mark.skipif(sys.platform != "linux", reason="how a full queue of connections looks differs")
async def test_addresses_that_do_not_answer_share_one_deadline() -> None:
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(2):  # no process accepts: the queue is full, and further connections hang
            queued = waiting.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(listener.getsockname())
        urls = [f"http://127.0.0.1:{listener.getsockname()[1]}/{number}" for number in range(10)]
        begin = time.monotonic()
        found = await reach_all(urls, deadline_s=1.0)

    assert found == {url: Reachability(problem="no answer within 1 s") for url in urls}
    assert time.monotonic() - begin < 8


async def test_offline_tries_only_this_machine(tmp_path: Path) -> None:
    environ = {"MAKAI_HOME": str(tmp_path), "ANTHROPIC_API_KEY": "secret-value", "OLLAMA_HOST": "127.0.0.1:9"}
    found = await checkup.examine(environ, offline=True)

    assert {one.name for one in found.agents} == known_agents().keys() - {"makai", "stub"}
    reached = {one.access.provider: one.reach for one in found.providers}
    assert reached["anthropic"] is None
    assert reached["ollama"] == Reachability(problem="connection refused")
    assert (found.usable, found.default_reason) == (True, "ANTHROPIC_API_KEY is set")
    assert b"secret-value" not in msgspec.json.encode(found)
