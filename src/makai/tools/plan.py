"""The tool `plan`: the steps an agent means to take, told to whoever watches.

In: the whole plan, every time. Out: the same, checked. Nothing is kept here: the caller logs the plan it was given, and
`plan_of` reads it from the arguments of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from makai.core.errors import InvalidRequest, MakaiError
from makai.core.session_events import PlanEntry
from makai.tools.base import Arguments, CallDescription, ToolContext, ToolOutcome, definition, parsed, text_outcome

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class PlanStep(Arguments, frozen=True, kw_only=True):
    """One step, as the model writes it."""

    content: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000, description="What is to be done.")]
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


class PlanArguments(Arguments, frozen=True, kw_only=True):
    """What `plan` takes."""

    steps: Annotated[
        tuple[PlanStep, ...],
        msgspec.Meta(max_length=200, description="The whole plan, finished steps too; it replaces the one before."),
    ]


def plan_of(arguments: Mapping[str, Any]) -> tuple[PlanEntry, ...]:
    """The plan in a call's arguments; `InvalidRequest` when it is none."""
    steps = parsed(arguments, PlanArguments).steps
    if sum(step.status == "in_progress" for step in steps) > 1:
        raise InvalidRequest("Only one step can be in progress.")
    return tuple(PlanEntry(content=step.content, status=step.status, priority=step.priority) for step in steps)


class PlanTool:
    """Shows and changes the plan."""

    definition = definition(
        "plan",
        "Show the steps of a task of three or more steps, and keep them up to date: one step is in_progress while you "
        "work on it, and completed as soon as it is done. Pass the whole plan every time.",
        PlanArguments,
    )

    async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        """How far the plan is."""
        steps = plan_of(arguments)
        done = sum(step.status == "completed" for step in steps)
        return CallDescription(kind="think", title=f"Plan: {done} of {len(steps)} steps done")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """The plan as a list."""
        try:
            steps = plan_of(arguments)
        except MakaiError as error:
            return text_outcome(str(error), is_error=True)
        return text_outcome(
            "\n".join(f"{_MARKS[step.status]} {step.content}" for step in steps) or "The plan is empty."
        )
