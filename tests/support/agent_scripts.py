"""Random scenarios for the agent loop, and the tools they call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from makai.tools.base import ToolContext, ToolOutcome, text_outcome
from support.agent import FakeTool

STEPS = st.sampled_from(
    [
        "say: Some words", "think: Hm", "tool: look {}", 'tool: look {"n": 1}', "tool: change {}", "tool: denied {}",
        "tool: breaks {}", "tool: strict {}", "tool: unknown {}", "tool: look {}\narguments: {broken",
        "usage: input=5 output=3", "wait: 0ms",
    ]
)  # fmt: skip
ENDS = st.sampled_from(
    [
        *["usage: input=2 output=1"] * 6,
        "stop: max_tokens",
        "fail: overloaded retry_after=0ms Busy.",
        "fail: context_overflow Too long.",
        "fail: provider_error Broken.",
        "cut",
    ]
)
ANSWERS = st.builds(lambda steps, end: "\n".join([*steps, end]), st.lists(STEPS, max_size=5), ENDS)
SCRIPTS = st.lists(ANSWERS, min_size=1, max_size=6).map("\n---\n".join)


async def slowly(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
    context.progress("working")
    await asyncio.sleep(0)
    return text_outcome("ok")


async def broken(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
    raise ValueError("broken")


def all_tools() -> dict[str, FakeTool]:
    tools = (
        FakeTool("look", slowly),
        FakeTool("change", slowly, kind="edit"),
        FakeTool("denied"),
        FakeTool("breaks", broken, kind="execute"),
        FakeTool("strict", schema='{"type":"object","required":["x"]}'),
    )
    return {tool.definition.name: tool for tool in tools}
