"""Questions of an agent that runs without a person are decided by the permissions of its spec."""

from __future__ import annotations

import pytest

from makai.client.harness.policy import PermissionPolicy, PolicyDecision
from makai.core import session_events as ev


@pytest.mark.req("DM-SPEC-007")
@pytest.mark.parametrize(
    ("arguments", "approve"), [("{}", False), ('{"command":"touch a"}', False), ('{"cmd":"ls"}', True)]
)
async def test_a_command_that_is_not_said_is_refused_where_some_commands_are_forbidden(
    arguments: str, approve: bool
) -> None:
    policy = PermissionPolicy(workspace="/w", deny=("Bash(touch:*)",), fallback="allow")
    call = ev.ToolCalled(call_id="c", name="shell", arguments_json=arguments, kind="execute")
    asked = ev.ApprovalRequested(call_id="c", name="shell", arguments_json=arguments, digest="")
    decided: PolicyDecision = await policy.decide(asked, call)
    assert decided.approve is approve
