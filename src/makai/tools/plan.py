"""The tool `plan`: the steps an agent means to take, for the people who watch.

Nothing is kept here: the loop logs the plan of each call, which `plan_of` reads from its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.session_events import PlanEntry
from makai.tools import base
from makai.tools.base import Arguments, CallDescription, ToolContext, ToolOutcome

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class PlanStep(Arguments, frozen=True, kw_only=True):
    content: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000, description="What is to be done.")]
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


class PlanArguments(Arguments, frozen=True, kw_only=True):
    steps: Annotated[
        tuple[PlanStep, ...],
        msgspec.Meta(max_length=200, description="The whole plan, finished steps too; it replaces the one before."),
    ]

    def __post_init__(self) -> None:
        if sum(step.status == "in_progress" for step in self.steps) > 1:
            raise InvalidRequest("Only one step can be in progress.")


def plan_of(arguments: Mapping[str, Any]) -> tuple[PlanEntry, ...]:
    """The plan in a call's arguments; `InvalidRequest` when it is none."""
    steps = base.parsed(arguments, PlanArguments).steps
    return tuple(PlanEntry(content=step.content, status=step.status, priority=step.priority) for step in steps)


class PlanTool(base.ArgumentsTool[PlanArguments]):
    shape = PlanArguments
    definition = base.definition(
        "plan",
        "Show the steps of a task of three or more steps, and keep them up to date: one step is in_progress while you "
        "work on it, and completed as soon as it is done. Pass the whole plan every time.",
        PlanArguments,
    )

    async def _describe(self, wanted: PlanArguments) -> CallDescription:
        done = sum(step.status == "completed" for step in wanted.steps)
        return CallDescription(kind="think", title=f"Plan: {done} of {len(wanted.steps)} steps done")

    async def _run(self, wanted: PlanArguments, context: ToolContext) -> ToolOutcome:
        lines = (f"{_MARKS[step.status]} {step.content}" for step in wanted.steps)
        return base.text_outcome("\n".join(lines) or "The plan is empty.")
