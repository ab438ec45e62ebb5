"""Decides the questions of an agent that runs without a person, by the permissions of its spec.

Denials win over permissions, and what no pattern matches is decided by `fallback`. The kind and the arguments of a call
are the agent's word.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from makai.core import session_events as ev
from makai.harness.contract.spec import Spec
from makai.harness.reported_calls import USER_INPUT_TOOLS, call_description, is_unclear
from makai.tools.base import CallDescription
from makai.tools.permissions.judging import judge_call
from makai.tools.permissions.rules import PermissionRules, parse_rules

Fallback: TypeAlias = Literal["allow", "deny", "prompt"]


class PolicyDecision(NamedTuple):
    approve: bool
    reason: str


class PermissionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    workspace: str
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    fallback: Fallback = "prompt"

    @classmethod
    def of(cls, spec: Spec, workspace: str) -> PermissionPolicy:
        """`InvalidRequest` for a pattern that cannot be read, rather than ignore what was to be forbidden."""
        config = spec.permission_config
        allow, deny = spec.effective_allowed_tools, spec.disallowed_tools
        if spec.autonomous:
            deny = (*deny, *USER_INPUT_TOOLS)
        if config is not None:
            allow, deny = (*allow, *config.allow_patterns), (*deny, *config.disallow_patterns)
        fallback: Fallback = "allow" if spec.autonomous else "prompt"
        if config is not None:
            fallback = config.fallback
        allow, deny = tuple(dict.fromkeys(allow)), tuple(dict.fromkeys(deny))
        policy = cls(workspace=workspace, allow=allow, deny=deny, fallback=fallback)
        policy.rules()
        return policy

    def rules(self) -> PermissionRules:
        return parse_rules(workspace=self.workspace, allow=self.allow, deny=self.deny)

    async def decide(self, asked: ev.ApprovalRequested, call: ev.ToolCalled | None) -> PolicyDecision:
        """`call` is the call that the question is about, where the log has it."""
        description = _description(asked, call)
        verdict = await judge_call("ask", self.rules(), (), asked.name, description, is_clients_own=False)
        if verdict.decision == "deny":
            return PolicyDecision(False, "The permissions of this session forbid it.")
        if is_unclear(self.rules(), description):
            return PolicyDecision(False, "The permissions of this session may forbid it: it does not say what it does.")
        if verdict.decision == "allow" and verdict.by == "rule":
            return PolicyDecision(True, "")
        if asked.confinement.opens and self.fallback != "allow":
            return PolicyDecision(False, "It asks for more than the sandbox of this session gives.")
        match self.fallback:
            case "allow":
                return PolicyDecision(True, "")
            case "deny":
                return PolicyDecision(False, "No permission of this session allows it.")
            case "prompt":
                return PolicyDecision(False, "It needs a person's approval, and no person takes part in this session.")


def _description(asked: ev.ApprovalRequested, call: ev.ToolCalled | None) -> CallDescription:
    return call_description(
        "" if call is None else call.kind,
        asked.arguments_json,
        title=asked.title,
        locations=() if call is None else call.locations,
        diffs=asked.diffs,
        confinement=asked.confinement,
    )
