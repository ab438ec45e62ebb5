"""`makai complete` as people and scripts call it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.cli import Cli

SCENARIO = """say: It is {"name": "Ada"}.
---
say: Sorry: {"name": "Ada", "born": 1815}
usage: input=5 output=4
"""
SCHEMA = """{"type": "object", "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
"required": ["name", "born"]}"""


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    (tmp_path / "scenario.txt").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "person.json").write_text(SCHEMA, encoding="utf-8")
    return Cli(tmp_path / "home", {"MAKAI_SCENARIO": str(tmp_path / "scenario.txt"), "PATH": os.environ["PATH"]})


@pytest.mark.req("DM-ONE-002", "DM-ONE-005", "DM-ONE-006")
async def test_an_answer_is_valid_json_or_nothing(makai: Cli, tmp_path: Path) -> None:
    schema = str(tmp_path / "person.json")
    repaired = await makai("complete", "-m", "scripted/scenario", "--schema", schema, "Who?")
    whole = await makai("complete", "-m", "scripted/scenario", "--schema", schema, "--json", "Who?")
    refused = await makai("complete", "-m", "scripted/scenario", "--schema", schema, "--repairs", "0", "Who?")

    assert (repaired.code, repaired.json()) == (0, {"name": "Ada", "born": 1815})
    assert whole.json() == {
        "text": 'Sorry: {"name": "Ada", "born": 1815}',
        "structured": {"name": "Ada", "born": 1815},
        "schemaOk": True,
        "problem": "",
        "cost": {"inputTokens": whole.json()["cost"]["inputTokens"], "outputTokens": 4, "numTurns": 2},
        "transportUsed": "direct-api",
        "attempts": 2,
    }
    assert (refused.code, refused.out) == (1, "")
    assert '"born" is a required property' in refused.err


async def test_text_of_standard_input_and_of_an_agent(makai: Cli) -> None:
    echoed = await makai("complete", "-m", "scripted/echo", stdin=b"From a pipe")
    agent = await makai("complete", "-a", "stub", "Do it")

    assert (echoed.code, echoed.out) == (0, "From a pipe\n")
    assert (agent.code, agent.out.splitlines()[-1]) == (0, "WORK_RESULT:passed")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--schema", '{"type": "nonsense"}', "Who?"], 2, "not a JSON Schema"),
        (["--schema", "missing.json", "Who?"], 2, "cannot read the schema"),
        (["-a", "nope", "Who?"], 2, "There is no harness 'nope'"),
        (["-m", "openai/gpt-6.1-sol", "Who?"], 3, "OPENAI_API_KEY"),
        ([], 2, "the prompt is missing"),
    ],
)
async def test_mistakes_are_explained(makai: Cli, arguments: list[str], code: int, message: str) -> None:
    done = await makai("complete", *arguments)

    assert (done.code, done.out) == (code, "")
    assert message in done.err
