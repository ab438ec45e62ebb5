"""Whether a call may run: what the mode of a session, written rules and earlier decisions say about it together.

The first line that holds decides:

    a rule or grant denies it                      deny, in every mode
    plan mode, and it may change something         deny
    a command, and no sandbox works here           ask
    full access                                    allow
    a rule wants to be asked                       ask
    a tool that its client carries out             allow
    it writes a protected file                     ask
    a rule or grant allows all of it               allow
    it only looks; edits in `accept_edits`         allow (commands only in the session's folders)
    anything else                                  ask
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.session_events import PermissionMode
from makai.tools.base import CallDescription
from makai.tools.looking import LooksAt, is_allowed, looked_at
from makai.tools.permission_rules import (
    PermissionRules,
    RuleDecision,
    any_version,
    decide_call,
    host_of,
    parse_rule,
    unreadable_paths,
)
from makai.tools.shell_programs import CHANGES_THE_SHELL, INTERPRETERS, LAUNCHERS, SHELLS, is_option, program_name
from makai.tools.shell_syntax import Word, plain_commands

PLAN_REASON: Final = (
    "The session is in plan mode: nothing is changed and no command is run that could change something. Look around "
    "with the tools that only read, then tell the user what you would do, and wait until the mode is changed."
)
_GRANTED_WITH_ANY_ARGUMENTS: Final = frozenset(
    {"add", "blame", "commit", "describe", "diff", "grep", "log", "ls-files", "rev-parse", "shortlog", "show", "status"}
)
"""Subcommands of git of which the next call will hardly have the same arguments, and none of whose arguments does what
a person would want to see first. `push`, `reset`, `checkout` or `config` are not like that."""
_ONLY_ONCE: Final = (
    SHELLS | INTERPRETERS - {"make"} | frozenset(LAUNCHERS) - {"npm", "pnpm", "yarn"} | CHANGES_THE_SHELL
)
"""Programs whose arguments are a program, or name one: sh, python -c, sudo, env, xargs, docker. A rule for one of them
covers either everything or hardly more than this one call, so none is offered; who wants one can write it."""
_SCRIPTS: Final = frozenset({"run", "test"})
_MAX_RULE: Final = 200
_NOT_IN_RULES: Final = frozenset(" \n*")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    decision: RuleDecision
    by: Literal["mode", "rule"]
    reason: str
    """For the model when it is denied, for a person who is asked, for the log."""
    grant: str = ""
    """When asked: the narrowest rule that a decision for more than this call would set. Empty: only this call."""
    looks_at: LooksAt | None = None
    """When allowed because the command only looks: what it reads. The file system has to agree (`judging`)."""


def judge(
    mode: PermissionMode,
    rules: PermissionRules,
    grants: Sequence[tuple[str, bool]],
    tool_name: str,
    description: CallDescription,
    *,
    is_clients_own: bool = False,
) -> Verdict:
    """Decide about a call.

    `grants` are rules that people set while they decided calls: the rule's text, and whether it allows or denies.
    `InvalidRequest` when one of them cannot be read. `is_clients_own`: the client that declared the tool carries it
    out, and knows itself what it may do.
    """
    rules = with_grants(rules, grants)
    written = decide_call(rules, tool_name, description)
    if written == "deny":
        return Verdict(decision="deny", by="rule", reason="A permission rule forbids this.")
    if mode == "plan" and not is_clients_own and _may_change(tool_name, description):
        return Verdict(decision="deny", by="mode", reason=PLAN_REASON)
    if description.kind == "execute" and rules.asks_every_command and not is_clients_own:
        return Verdict(decision="ask", by="rule", reason="No sandbox works here, so the command would run unconfined.")
    if mode == "never_ask":
        return Verdict(decision="allow", by="mode", reason="The session has full access.")
    if written == "ask":
        # No grant is offered: the author of this rule wants to be asked each time.
        return Verdict(decision="ask", by="rule", reason="A permission rule wants this to be asked.")
    if is_clients_own:
        return Verdict(decision="allow", by="mode", reason="Its client carries it out.")
    if description.protected:
        # Never without asking in any mode but `never_ask`, so neither a rule nor a grant can allow it.
        return Verdict(decision="ask", by="mode", reason="This file can make later commands run code.")
    if written == "allow":
        return Verdict(decision="allow", by="rule", reason="A permission rule allows this.")
    if (looks_at := _looks_at(rules, tool_name, description)) is not None:
        return Verdict(decision="allow", by="mode", reason="The command only looks.", looks_at=looks_at)
    if _is_free(mode, tool_name, description):
        return Verdict(decision="allow", by="mode", reason=f"The mode {mode} allows this.")
    reason = f"The mode {mode} asks before this."
    return Verdict(decision="ask", by="mode", reason=reason, grant=_grant(rules, tool_name, description))


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
    if description.kind != "execute" or _is_mcp(tool_name) or not rules.looking_roots or not description.locations:
        return None
    found = looked_at(description.subject, description.locations[0].path)
    return found if found is not None and is_allowed(found, rules.looking_roots, unreadable_paths(rules)) else None


def _is_free(mode: PermissionMode, tool_name: str, description: CallDescription) -> bool:
    """What runs in a mode without a rule. File tools describe no call that leaves the session's folders."""
    if _is_mcp(tool_name):
        return False
    return description.kind in ("read", "search", "think") or (mode == "accept_edits" and description.kind == "edit")


def _grant(rules: PermissionRules, tool_name: str, description: CallDescription) -> str:
    """The narrowest rule that covers this call, "" when there is none that a person should set in passing."""
    for text in _candidates(tool_name, description):
        try:
            alone = PermissionRules(workspace=rules.workspace, allow=(parse_rule(text),))
        except InvalidRequest:
            continue
        if decide_call(alone, tool_name, description) == "allow":
            return text
    return ""


def _candidates(tool_name: str, description: CallDescription) -> Sequence[str]:
    if _is_mcp(tool_name):
        return [f"{tool_name}({description.subject})"]
    match description.kind:
        case "execute":
            return [f"Bash({rule})" for rule in _command_rules(description.subject)]
        case "edit":
            # An escape in the path stands for more than one file, and a wildcard for any.
            if set(description.subject) & set("\\*?"):
                return []
            # `./`, for a person takes `Edit(/calc.py)` for a file of the whole machine; that one has two slashes.
            return [f"Edit({'/' if description.subject.startswith('/') else './'}{description.subject})"]
        case "fetch":
            return [f"WebFetch(domain:{host_of(description.subject)})"]
        case _:
            return []


def _command_rules(command: str) -> list[str]:
    """Of one plain command only: what `a && b` does is more than what a rule for `a` and one for `b` say."""
    commands = plain_commands(command)
    if commands is None or len(commands) != 1 or _is_only_once(commands[0]):
        return []
    words = [word.source for word in commands[0]]
    rules = [f"git {words[1]}:*"] if words[0] == "git" and words[1:] and words[1] in _GRANTED_WITH_ANY_ARGUMENTS else []
    exactly = " ".join(words)
    if len(exactly) <= _MAX_RULE and not any(_NOT_IN_RULES.intersection(word) for word in words):
        rules.append(exactly)
    return rules


def _is_only_once(command: Sequence[Word]) -> bool:
    """Whether even the same words may do something else the next time, or do anything at all."""
    program, *arguments = (word.value for word in command)
    name = program_name(program)
    if name in _ONLY_ONCE or "/" in program:  # the file may be another one by then
        return True
    match name:
        case "git":
            return not arguments or is_option(arguments[0])  # -c and -C: another configuration
        case "npm" | "pnpm" | "yarn":
            return not arguments or arguments[0] not in _SCRIPTS
        case "make":
            return any(is_option(word) or "=" in word for word in arguments)
        case _:
            return False
