"""Judging a shell command within bounds of time and memory."""

from __future__ import annotations

import resource
import time

import pytest
from support.machine import slack

from makai.core.errors import InvalidRequest
from makai.core.session_events import FilePlace, PermissionMode
from makai.tools.base import CallDescription
from makai.tools.permissions.judge import PLAN_REASON, Verdict, judge
from makai.tools.permissions.judging import UNREADABLE_REASON, judge_call
from makai.tools.permissions.rules import parse_rules

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


@pytest.mark.parametrize("text", ["x" * (MEGABYTE + 1), "ls \ud800"], ids=["too long", "half a character"])
async def test_what_cannot_be_read_is_asked_and_in_plan_mode_denied(text: str) -> None:
    assert await judged(text) == UNREADABLE
    assert await judged(text, "plan") == Verdict(decision="deny", by="mode", reason=PLAN_REASON)


async def test_a_grant_that_cannot_be_read_is_an_error_of_its_own() -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        await judge_call("ask", RULES, [("Edit(../x)", True)], "shell", command("ls"), is_clients_own=False)
