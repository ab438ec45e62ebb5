"""The narrowest rules that a person could write for a call for which none is offered in passing."""

from __future__ import annotations

import os

from makai.core.confinement import Confinement
from makai.core.errors import InvalidRequest
from makai.core.session_events import FilePlace
from makai.tools.base import CallDescription
from makai.tools.permissions.confinement import suffix_of
from makai.tools.permissions.git_credentials import holds_credentials
from makai.tools.permissions.rules import PermissionRules, decide_call, parse_rule
from makai.tools.shell_policy.syntax import plain_commands

SHELL = "shell"
READ = "read"


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


def credentials_read_rules(path: str, workspace: str) -> tuple[str, ...]:
    """The rule for reading one configuration of git that holds credentials, by its path from the session's folder.
    Empty for other files, which are asked about only where a rule wants it, and when no rule can name the file."""
    if "\0" in path:
        return ()
    folder = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(folder, path))
    if set(real) & set("\\*?") or not holds_credentials(real):
        return ()
    relative = os.path.relpath(real, folder)
    shown, written = (real, f"/{real}") if relative.startswith("..") else (relative, f"./{relative}")
    description = CallDescription(kind="read", title="", subject=shown, locations=(FilePlace(path=real),))
    try:
        rules = PermissionRules(workspace=folder, allow=(parse_rule(f"Read({written})"),))
    except InvalidRequest:
        return ()
    return (f"Read({written})",) if decide_call(rules, READ, description) == "allow" else ()
