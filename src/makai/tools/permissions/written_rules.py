"""The narrowest rules that a person could write for a call for which none is offered in passing."""

from __future__ import annotations

from makai.core.confinement import Confinement
from makai.core.errors import InvalidRequest
from makai.tools.base import CallDescription
from makai.tools.permissions.confinement import suffix_of
from makai.tools.permissions.rules import PermissionRules, decide_call, parse_rule
from makai.tools.shell_policy.syntax import plain_commands

SHELL = "shell"


def exact_command_rules(command: str, workspace: str, confinement: Confinement) -> tuple[str, ...]:
    """One rule for each command of a shell line, with exactly its words; empty when such rules do not allow the line,
    because it does more than its commands say."""
    commands, opened = plain_commands(command), suffix_of(confinement)
    if not commands or opened is None:
        return ()
    written = dict.fromkeys(f"Bash({' '.join(word.source for word in words)}){opened}" for words in commands)
    description = CallDescription(kind="execute", title="", subject=command, confinement=confinement)
    try:
        rules = PermissionRules(workspace=workspace, allow=tuple(map(parse_rule, written)))
    except InvalidRequest:
        return ()
    return tuple(written) if decide_call(rules, SHELL, description) == "allow" else ()
