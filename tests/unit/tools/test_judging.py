"""Judging a shell command within bounds of time and memory."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from support.machine import slack

from makai.core.errors import InvalidRequest, MakaiError
from makai.core.session_events import FilePlace, PermissionMode
from makai.tools.base import CallDescription, Tool, ToolKind
from makai.tools.edit import EditTool, WriteTool
from makai.tools.fetch import FetchTool
from makai.tools.files import ListTool, ReadTool
from makai.tools.permissions.judge import PLAN_REASON, Verdict, judge
from makai.tools.permissions.judging import UNREADABLE_REASON, judge_call
from makai.tools.permissions.rules import PermissionRules, denied_paths, parse_rules
from makai.tools.search import GlobTool, GrepTool
from makai.tools.workspace import Workspace

ROOT = "/srv/app"
RULES = parse_rules(workspace=ROOT, allow=["Bash(ls:*)"], deny=["Bash(rm:*)"])
MEGABYTE = 1024 * 1024
UNREADABLE = Verdict(decision="ask", by="mode", reason=UNREADABLE_REASON)
HOSTILE = {
    "variables that double": "a=xxxxxxxxxx;" + "a=$a$a;" * 40 + "$a",
    "a value in many places": "a=" + "x" * 8_000 + ";" + "$a" * 40_000,
    "deep nesting": "$(" * 200_000,
    "nested quotes": "\"$('" * 200_000,
    "many texts": "bash -c 'bash -c \"echo x\"';" * 30_000,
    "braces": "echo " + "{a,b}" * 200_000,
    "nested braces": "{" * 500_000 + ",}" * 200_000,
    "many commands": "ls;" * 300_000,
    "many words": "ls " + "x " * 400_000,
    "one word": "x" * MEGABYTE,
    "heredocs": "cat <<A <<B <<C\n" * 50_000,
    "backslashes": "\\\n" * 500_000,
    "astral characters": "\U0001f389{" * 250_000,
    "redirections": ">x" * 500_000,
}


def command(text: str) -> CallDescription:
    return CallDescription(kind="execute", title=text, subject=text, locations=(FilePlace(ROOT),))


async def judged(text: str, mode: PermissionMode = "ask") -> Verdict:
    return await judge_call(mode, RULES, [], "shell", command(text), is_clients_own=False)


@pytest.mark.parametrize("text", ["ls -l", "rm -rf x", "git commit -m 'naïve 🎉'", "echo $(rm x)", "", "make; ls"])
@pytest.mark.parametrize("mode", ["ask", "plan", "accept_edits", "never_ask"])
async def test_the_worker_decides_as_the_rules_say(text: str, mode: PermissionMode) -> None:
    grants = [("Bash(make)", True)]

    answer = await judge_call(mode, RULES, grants, "shell", command(text), is_clients_own=False)
    assert answer == judge(mode, RULES, grants, "shell", command(text))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_no_command_of_a_megabyte_costs_more_than_its_limits(text: str) -> None:
    before, used = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    begun = time.monotonic()
    verdict = await judged(text[:MEGABYTE])
    after = resource.getrusage(resource.RUSAGE_SELF)

    assert verdict.decision == "ask"
    assert time.monotonic() - begun < 5 * slack()
    assert after.ru_utime - before.ru_utime < 0.5
    assert after.ru_maxrss - before.ru_maxrss < 50 * 1024
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime == used  # its processes belong to the launcher


async def test_patterns_that_take_long_to_expand_are_asked_about_and_not_expanded_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2_000):
        (tmp_path / f"f{number}").touch()
    rules = msgspec.structs.replace(RULES, allow=(), looking_roots=(str(tmp_path),))

    async def decided(text: str) -> Verdict:
        call = CallDescription(kind="execute", title="", subject=text, locations=(FilePlace(str(tmp_path)),))
        return await judge_call("ask", rules, [], "shell", call, is_clients_own=False)

    assert (await decided("ls *")).decision == "allow"
    monkeypatch.setattr(os, "scandir", None)
    assert (await decided("ls *")).decision == "allow"
    many = " ".join("*" * count for count in range(1, 41))
    verdict = await decided(f"ls {many}")
    assert (verdict.decision, verdict.looks_at, verdict.reason) == ("ask", None, "The mode ask asks before this.")


@pytest.mark.parametrize("text", ["x" * (MEGABYTE + 1), "ls \ud800"], ids=["too long", "half a character"])
async def test_what_cannot_be_read_is_asked_and_in_plan_mode_denied(text: str) -> None:
    assert await judged(text) == UNREADABLE
    assert await judged(text, "plan") == Verdict(decision="deny", by="mode", reason=PLAN_REASON)


async def test_a_grant_that_cannot_be_read_is_an_error_of_its_own() -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        await judge_call("ask", RULES, [("Edit(../x)", True)], "shell", command("ls"), is_clients_own=False)


RULE_FORMS = [
    *("Read(.env)", "Read(**/a/**/b/**/c)", "Read(//**/a/**/a/**/b)", "Edit(*a*a*a*a*a*b)", "Edit(**/*a*a*/**/*b*/c)"),
    *("Write(/a/?/**/?a)", "WebFetch(domain:*.a.a.a.a.example)", "Read", "mcp__a__*", "Bash(a:*)"),
]
ALONE_AND_TOGETHER = [*([form] for form in RULE_FORMS), [form for form in RULE_FORMS if "(" in form]]
MARKS = "\u0301\u0316"
HOSTILE_PATHS = {
    "marks": MARKS * 4_000,
    "a megabyte of marks": MARKS * 250_000,
    "names of marks": "/".join([MARKS * 60] * 16),
    "long names of marks": f"a{MARKS * 500}/" * 500,
    "many names": "a/" * 2_000,
    "a megabyte of names": "a/" * 500_000,
    "names that match": "a/b/" * 1_000,
    "a name": "a" * 255,
    "a long name": "a" * 4_000,
    "a megabyte": "a" * 1_000_000,
    "parents": "../" * 300_000,
    "slashes": "/" * 1_000_000,
    "dots": "./" * 2_000,
    "bytes": "\udcff" * 4_000,
    "invisible signs": "\u200b/" * 1_000,
    "letters that grow": "\u0390" * 1_300,
    "stars": "*a" * 490,
    "choices": "{a,b}" * 6 + "*a" * 300,
    "nested braces": "{" * 900,
    "questions": "?" * 990,
}


def calls(text: str) -> list[tuple[str, dict[str, str]]]:
    """Every argument of a tool that may be this text."""
    files = [("read", {"path": text}), ("list", {"path": text}), ("write", {"path": text, "content": "x"})]
    files += [("write", {"path": "a", "content": text}), ("glob", {"pattern": text}), ("grep", {"pattern": text})]
    files += [("edit", {"path": text, "old_text": "a", "new_text": "b"})]
    files += [("edit", {"path": "file", "old_text": text, "new_text": text})]
    files += [("grep", {"pattern": "x", "path": text}), ("grep", {"pattern": "x", "glob": text})]
    return [*files, ("glob", {"pattern": "x", "path": text}), ("fetch", {"url": f"http://a.example/{text}"})]


async def cost(tool: Tool, arguments: Mapping[str, str], rules: PermissionRules) -> float:
    """Processor time of everything before a call is decided."""
    begun = time.process_time()
    try:
        description = await tool.describe(arguments)
    except MakaiError:
        return time.process_time() - begun
    await judge_call("ask", rules, [], tool.definition.name, description, is_clients_own=False)
    return time.process_time() - begun


@pytest.mark.parametrize("text", HOSTILE_PATHS.values(), ids=HOSTILE_PATHS.keys())
async def test_no_argument_of_a_file_tool_costs_more_than_its_limits(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text("a" * 1_000)
    slow: dict[str, float] = {}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for forms in ALONE_AND_TOGETHER:
        rules = parse_rules(workspace=str(tmp_path), allow=forms, ask=forms, deny=forms)
        workspace, denied = Workspace([tmp_path]), denied_paths(rules, "Read", "Edit", "Write")
        reading: list[Tool] = [ReadTool(workspace, denied), ListTool(workspace, denied), GlobTool(workspace, denied)]
        writing: list[Tool] = [GrepTool(workspace, denied), WriteTool(workspace, denied), EditTool(workspace, denied)]
        tools = {tool.definition.name: tool for tool in (*reading, *writing, FetchTool())}
        for name, arguments in calls(text):
            spent = [await cost(tools[name], arguments, rules)]
            while spent[-1] > 0.1 and len(spent) < 3:  # what another process does to the caches is none of it
                spent.append(await cost(tools[name], arguments, rules))
            if min(spent) > 0.1:
                slow[f"{name} {sorted(arguments)} {forms}"] = min(spent)

    assert slow == {}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 50 * 1024


@pytest.mark.parametrize("text", HOSTILE_PATHS.values(), ids=HOSTILE_PATHS.keys())
def test_no_description_costs_more_than_its_limits(text: str) -> None:
    """Another agent says what its calls do, in words that no tool of ours has checked."""
    kinds: list[ToolKind] = ["read", "search", "edit", "fetch", "other"]
    slow: dict[str, float] = {}
    for forms in ALONE_AND_TOGETHER:
        rules = parse_rules(workspace=ROOT, allow=forms, ask=forms, deny=forms)
        for kind in kinds:
            call = CallDescription(kind=kind, title=text, subject=text, locations=(FilePlace(f"/{text}"),))
            spent = []
            for _ in range(3):
                begun = time.process_time()
                judge("ask", rules, (), "tool", call)
                spent.append(time.process_time() - begun)
            if min(spent) > 0.1:
                slow[f"{kind} {forms}"] = min(spent)

    assert slow == {}
