"""Whether a call may run: what the mode of a session, written rules and earlier decisions say about it together.

The first line that holds decides:

    a rule or grant denies it                      deny, in every mode
    plan mode, and it may change something         deny
    plan mode, and it asks for more than the
    session's sandbox                              deny
    a command, and no sandbox works here           ask
    it asks for more, without a rule that gives
    it, in `never_ask`                             deny
    `never_ask`                                    allow
    a rule wants to be asked                       ask
    a tool that its client carries out,
    and that does not ask by itself                allow
    it writes a protected file                     ask
    a rule or grant allows all of it               allow; git commands that only look, and in plan mode all
                                                   commands, only read-only and with git's helpers off, else ask
    it only looks and does not ask by itself;
    edits in `accept_edits`                        allow (commands only in the session's folders)
    anything else                                  ask
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from makai.core.confinement import OfferedGrant
from makai.core.session_events import PermissionMode
from makai.tools.base import CallDescription
from makai.tools.permissions.looking import LooksAt, is_allowed, looked_at
from makai.tools.permissions.offered_grants import default_grant, offered_grants
from makai.tools.permissions.rules import (
    PermissionRules,
    RuleDecision,
    allows_every_command,
    any_version,
    decide_call,
    parse_rule,
    unreadable_paths,
)

HELPERS_REASON: Final = (
    "The configuration of this repository is not known to be harmless: git may run programs that it names, and a "
    "permission rule for a git command that only looks does not cover those."
)
PLAN_REASON: Final = (
    "The session is in plan mode: nothing is changed and no command is run that could change something. Look around "
    "with the tools that only read, then tell the user what you would do, and wait until the mode is changed."
)
NEVER_ASKS_REASON: Final = (
    "The session never asks, and this call wants more than its sandbox gives. Do without it, or tell the user what you "
    "need: a rule such as `Bash(git commit:*)+git` allows it, and so does another permission mode, in which the user "
    "is asked."
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    decision: RuleDecision
    by: Literal["mode", "rule"]
    reason: str
    """For the model when it is denied, for a person who is asked, for the log."""
    grant: str = ""
    """When asked: the rule that a decision for more than this call sets by default. Empty: only this call."""
    grants: tuple[OfferedGrant, ...] = ()
    """The rules that such a decision may choose from, the narrowest first."""
    looks_at: LooksAt | None = None
    """When the command runs as one that only looks, read-only and with git's helpers off: what has to lie in the
    session's folders for that. The file system has to agree (`judging`)."""


def judge(
    mode: PermissionMode,
    rules: PermissionRules,
    grants: Sequence[tuple[str, bool]],
    tool_name: str,
    description: CallDescription,
    *,
    is_clients_own: bool = False,
    may_look: bool = True,
) -> Verdict:
    """Decide about a call.

    `grants` are rules that people set while they decided calls: the rule's text, and whether it allows or denies.
    `InvalidRequest` when one of them cannot be read. `is_clients_own`: the client that declared the tool carries it
    out, and knows itself what it may do. `may_look` is False when the file system did not agree with `looks_at`.
    """
    is_clients_own = is_clients_own and not description.asks
    rules = with_grants(rules, grants)
    written = decide_call(rules, tool_name, description)
    if written == "deny":
        return Verdict(decision="deny", by="rule", reason="A permission rule forbids this.")
    opens = description.confinement.opens
    if mode == "plan" and not is_clients_own and (opens or _may_change(tool_name, description)):
        return Verdict(decision="deny", by="mode", reason=PLAN_REASON)
    if description.kind == "execute" and rules.asks_every_command and not is_clients_own:
        return Verdict(decision="ask", by="rule", reason="No sandbox works here, so the command would run unconfined.")
    if mode == "never_ask" and opens and written != "allow":
        return Verdict(decision="deny", by="mode", reason=NEVER_ASKS_REASON)
    if mode == "never_ask":
        return Verdict(decision="allow", by="mode", reason="The mode never_ask asks nothing.")
    if written == "ask":
        # No grant is offered: the author of this rule wants to be asked each time.
        return Verdict(decision="ask", by="rule", reason="A permission rule wants this to be asked.")
    if is_clients_own:
        return Verdict(decision="allow", by="mode", reason="Its client carries it out.")
    if description.protected:
        # Never without asking in any mode but `never_ask`, so neither a rule nor a grant can allow it.
        return Verdict(decision="ask", by="mode", reason="This file can make later commands run code.")
    if written == "allow":
        looks_at = None if opens else _looks_by_rule(mode, rules, tool_name, description)
        if looks_at is not None and not may_look:
            return Verdict(decision="ask", by="mode", reason=HELPERS_REASON)
        if mode == "plan" and description.kind == "execute" and looks_at is None:
            reason = "In plan mode a rule counts only where the command is sure to change nothing."
            return Verdict(decision="ask", by="mode", reason=reason)
        return Verdict(decision="allow", by="rule", reason="A permission rule allows this.", looks_at=looks_at)
    if may_look and not opens and (looks_at := _looks_at(rules, tool_name, description)) is not None:
        return Verdict(decision="allow", by="mode", reason="The command only looks.", looks_at=looks_at)
    if not opens and not description.asks and _is_free(mode, tool_name, description):
        return Verdict(decision="allow", by="mode", reason=f"The mode {mode} allows this.")
    reason = "It asks for more than the session's sandbox gives." if opens else f"The mode {mode} asks before this."
    reason = description.asks_because or "The tool asks before each call." if description.asks else reason
    offered = offered_grants(rules, tool_name, description)
    return Verdict(decision="ask", by="mode", reason=reason, grant=default_grant(offered), grants=offered)


def with_grants(rules: PermissionRules, grants: Sequence[tuple[str, bool]]) -> PermissionRules:
    return msgspec.structs.replace(
        rules,
        allow=(*rules.allow, *(parse_rule(text) for text, allows in grants if allows)),
        deny=(*rules.deny, *(any_version(parse_rule(text)) for text, allows in grants if not allows)),
    )


def _is_mcp(tool_name: str) -> bool:
    return tool_name.startswith("mcp__")


def _may_change(tool_name: str, description: CallDescription) -> bool:
    """For plan mode: whether a call is not known to leave everything as it is."""
    match description.kind:
        case "execute":
            return _is_mcp(tool_name) or looked_at(description.subject, "/") is None
        case "read" | "search" | "think" | "fetch":
            # An MCP tool says that about itself. That is enough to ask a person, and `_is_free` sees to it.
            return False
        case "edit" | "other":
            return True


def _looks_at(rules: PermissionRules, tool_name: str, description: CallDescription) -> LooksAt | None:
    """What a command reads that may run unasked, for it only looks at what may be read in the session's folders."""
    found = _read(rules, tool_name, description)
    return found if found is not None and is_allowed(found, rules.looking_roots, unreadable_paths(rules)) else None


def _looks_by_rule(
    mode: PermissionMode, rules: PermissionRules, tool_name: str, description: CallDescription
) -> LooksAt | None:
    """For a command that a rule allows, wherever it looks. Only a rule for every command trusts a repository with the
    helpers that cannot be switched off, and not in plan mode: it could run them directly."""
    found = _read(rules, tool_name, description)
    if found is None or (mode != "plan" and not found.repositories):
        return None
    if mode != "plan" and allows_every_command(rules, tool_name, description):
        return LooksAt()
    return LooksAt(repositories=found.repositories)


def _read(rules: PermissionRules, tool_name: str, description: CallDescription) -> LooksAt | None:
    """What a command reads; None when it does not only look, or nothing would confine it to that."""
    if description.kind != "execute" or _is_mcp(tool_name) or not rules.looking_roots or not description.locations:
        return None
    return looked_at(description.subject, description.locations[0].path)


def _is_free(mode: PermissionMode, tool_name: str, description: CallDescription) -> bool:
    """What runs in a mode without a rule. File tools describe no call that leaves the session's folders."""
    if _is_mcp(tool_name):
        return False
    return description.kind in ("read", "search", "think") or (mode == "accept_edits" and description.kind == "edit")
