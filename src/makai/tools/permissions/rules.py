"""Rules about tool calls that people write down: `Bash(git log:*)`, `Read(src/**)`, `WebFetch(domain:x)`, `mcp__s__*`.

`server__*` stands for all tools of a tool server (`harness.tool_servers`).

Precedence: deny, then ask, then allow. A rule that restricts matches when any part of the call is meant; a rule that
allows only when all of it is. Paths are compared as text; the file tools keep them from leading elsewhere by a link.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, assert_never
from urllib.parse import urlsplit

import msgspec

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.errors import InvalidRequest
from makai.core.tool_server_ids import is_server_id
from makai.tools.base import CallDescription, ToolKind
from makai.tools.permissions import confinement
from makai.tools.permissions.path_patterns import DeniedPaths, PathPattern, is_plain_path, parse_path_pattern
from makai.tools.shell_policy.policy import decide, parse_shell_rule

RuleDecision: TypeAlias = Literal["allow", "ask", "deny"]
Family: TypeAlias = Literal["Bash", "Read", "Edit", "Write", "WebFetch"]

_KINDS: Final[dict[Family, frozenset[ToolKind]]] = {
    "Bash": frozenset({"execute"}),
    "Read": frozenset({"read", "search"}),
    "Edit": frozenset({"edit"}),
    "Write": frozenset({"edit"}),
    "WebFetch": frozenset({"fetch"}),
}
_RULE: Final = re.compile(
    rf"(?P<name>(?:[A-Za-z]|\d(?=[\w-]*__))[\w.-]*\*?)(?:\((?P<inside>.*?)\))?(?P<opened>{confinement.SUFFIX})",
    re.DOTALL,
)
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16,64}")
_MCP: Final = re.compile(r"mcp__[^*]+?(?:__(?:\*|[^*]*))?")
_UNAMBIGUOUS_URL: Final = re.compile(r"https?://[a-z0-9.\[\]:-]+(?:[/?#][!#-;=?-\[\]_a-z~]*)?", re.IGNORECASE)
_DOMAIN: Final = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")


class AnyCall(msgspec.Struct, frozen=True, tag="any"):
    """`Bash`, `Read`, ...: every call of a family."""

    family: Family
    opened: Confinement = SESSION_SANDBOX
    """Of a command: what it may do beyond the session's sandbox."""


class ShellCall(msgspec.Struct, frozen=True, tag="shell"):
    """`Bash(git log:*)`, `Bash(git commit:*)+git`."""

    rule: str
    opened: Confinement = SESSION_SANDBOX


class FileCall(msgspec.Struct, frozen=True, tag="file"):
    """`Read(src/**)`, `Edit(...)`, `Write(...)`."""

    family: Literal["Read", "Edit", "Write"]
    pattern: PathPattern


class FetchCall(msgspec.Struct, frozen=True, tag="fetch"):
    """`WebFetch(domain:example.com)`; `*.example.com` for everything below it."""

    domain: str


class NamedTool(msgspec.Struct, frozen=True, tag="name"):
    """A tool by its name; with `is_prefix` every tool whose name begins so."""

    name: str
    is_prefix: bool = False
    fingerprint: str = ""
    """`mcp__server__tool(fingerprint)`: the tool only as it was when a person approved it."""


Rule: TypeAlias = AnyCall | ShellCall | FileCall | FetchCall | NamedTool


class PermissionRules(msgspec.Struct, frozen=True, kw_only=True):
    workspace: str
    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    asks_every_command: bool = False
    """No sandbox works here: no command runs without a person's consent, whatever the rules and the mode say."""
    looking_roots: tuple[str, ...] = ()
    """The session's folders, in which commands that only look run unasked; none where commands are not confined."""


@functools.lru_cache(maxsize=1024)
def parse_rule(text: str) -> Rule:
    """One rule; `InvalidRequest` names a rule that cannot be read, rather than ignore what was to be forbidden."""
    matched = _RULE.fullmatch(text.strip())
    if matched is None:
        raise _unreadable(text, "Expected a tool's name, alone or with a condition in parentheses.")
    name, inside = matched["name"], matched["inside"]
    if matched["opened"] and name != "Bash":
        raise _unreadable(text, confinement.HINT)
    if name.startswith("mcp__") or name not in _KINDS:
        return _parse_named(text, name, inside)
    return _parse_family(text, name, inside, confinement.parse_suffix(matched["opened"]))


def parse_rules(
    *, workspace: str, allow: Iterable[str] = (), ask: Iterable[str] = (), deny: Iterable[str] = ()
) -> PermissionRules:
    """Parse the three lists. `workspace` is an absolute path."""
    if not workspace.startswith("/"):
        raise InvalidRequest(f"the workspace of permission rules must be an absolute path, not {workspace!r}.")
    return PermissionRules(
        workspace=workspace,
        allow=tuple(map(parse_rule, allow)),
        ask=tuple(map(parse_rule, ask)),
        deny=tuple(map(parse_rule, deny)),
    )


def decide_call(rules: PermissionRules, tool_name: str, description: CallDescription) -> RuleDecision | None:
    """What the rules say about a call; None when none of them speaks about it."""
    call = _Call(rules.workspace, tool_name, description)
    if call.is_restricted_by(rules.deny):
        return "deny"
    if call.is_restricted_by(rules.ask):
        return "ask"
    return "allow" if call.is_allowed_by(rules.allow, rules.deny) else None


def allows_every_command(rules: PermissionRules, tool_name: str, description: CallDescription) -> bool:
    """Whether a command is allowed by rules that name none: `Bash`, `Bash(*)` or the tool itself."""
    general = tuple(
        rule for rule in rules.allow if not isinstance(rule, ShellCall) or parse_shell_rule(rule.rule).covers_everything
    )
    return decide_call(msgspec.structs.replace(rules, allow=general), tool_name, description) == "allow"


def denied_paths(rules: PermissionRules, *families: Family) -> DeniedPaths:
    """The files that rules of these families deny, or want to be asked about before they are read: for tools that look
    through a folder, or find a file by another name than the rules were asked about."""
    patterns = (rule.pattern for rule in rules.deny if isinstance(rule, FileCall) and rule.family in families)
    asked = (rule.pattern for rule in rules.ask if isinstance(rule, FileCall) and rule.family == "Read")
    return DeniedPaths(workspace=rules.workspace, patterns=tuple(patterns), asked=tuple(asked))


def unreadable_paths(rules: PermissionRules) -> DeniedPaths:
    """The files that no command may read unasked: a rule denies to read them, or wants to be asked."""
    restricting = (*rules.deny, *rules.ask)
    if any(isinstance(rule, AnyCall) and rule.family == "Read" for rule in restricting):
        return DeniedPaths(patterns=(PathPattern((), is_absolute=True),))
    patterns = (rule.pattern for rule in restricting if isinstance(rule, FileCall) and rule.family == "Read")
    return DeniedPaths(workspace=rules.workspace, patterns=tuple(patterns))


def any_version(rule: Rule) -> Rule:
    """The rule for a tool of an MCP server without its fingerprint: a denial outlives a change of the description."""
    return msgspec.structs.replace(rule, fingerprint="") if isinstance(rule, NamedTool) else rule


def _unreadable(text: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"permission rule {text!r} cannot be read.", hint=hint)


def _parse_named(text: str, name: str, inside: str | None) -> NamedTool:
    if inside is not None:
        if "__" in name.removeprefix("mcp__") and "*" not in name and _FINGERPRINT.fullmatch(inside):
            return NamedTool(name, fingerprint=inside)
        raise _unreadable(text, f"Only {', '.join(_KINDS)} take a condition in parentheses.")
    if not name.startswith("mcp__"):
        if name.endswith("__*") and is_server_id(name[:-3]):
            return NamedTool(name[:-1], is_prefix=True)
        if "*" in name:
            raise _unreadable(text, "`*` stands only at the end of server__* or mcp__server__*.")
        return NamedTool(name)
    if not _MCP.fullmatch(name):
        raise _unreadable(text, "Expected mcp__server, mcp__server__* or mcp__server__tool.")
    if name.endswith("__*"):
        return NamedTool(name[:-1], is_prefix=True)
    if "__" not in name.removeprefix("mcp__"):
        return NamedTool(f"{name}__", is_prefix=True)
    return NamedTool(name)


def _parse_family(text: str, name: str, inside: str | None, opened: Confinement) -> Rule:
    family = msgspec.convert(name, Family)
    if inside is None or inside.strip() == "*":
        return AnyCall(family, opened)
    match family:
        case "Bash":
            parse_shell_rule(inside)
            return ShellCall(inside, opened)
        case "WebFetch":
            domain = inside.strip().lower().removeprefix("domain:").rstrip(".")
            if not inside.strip().lower().startswith("domain:") or not _DOMAIN.fullmatch(domain):
                raise _unreadable(text, "Expected WebFetch(domain:example.com) or WebFetch(domain:*.example.com).")
            return FetchCall(domain)
        case "Read" | "Edit" | "Write":
            pattern = parse_path_pattern(inside.strip())
            if pattern is None:
                raise _unreadable(text, "Expected a path pattern of names, ?, * and **, without `..` and leading `!`.")
            return FileCall(family, pattern)
        case _ as never:
            assert_never(never)


class _Call:
    def __init__(self, workspace: str, tool_name: str, description: CallDescription) -> None:
        self._workspace = workspace
        self._name = tool_name
        self._description = description
        self._opened = description.confinement
        touched = (description.subject, *(place.path for place in description.locations))
        paths = (*touched, *(diff.path for diff in description.diffs))
        self._paths = tuple(dict.fromkeys(path for path in paths if path))

    def is_restricted_by(self, rules: tuple[Rule, ...]) -> bool:
        shell = [rule.rule for rule in rules if isinstance(rule, ShellCall) and self._is_opened_like(rule)]
        if shell and self._belongs_to("Bash") and decide(self._description.subject, [], shell) == "deny":
            return True
        return any(self._restricts(rule) for rule in rules)

    def _restricts(self, rule: Rule) -> bool:
        match rule:
            case AnyCall():
                return self._belongs_to(rule.family) and self._is_opened_like(rule)
            case NamedTool():
                return self._is_named_by(rule)
            case FileCall():
                meant = map(DeniedPaths(workspace=self._workspace, patterns=(rule.pattern,)).cover, self._paths)
                # What may not be read may not be edited either: an edit tells what is there.
                edits = rule.family == "Read" and self._belongs_to("Edit")
                return (self._belongs_to(rule.family) or edits) and any(meant)
            case FetchCall():
                return self._belongs_to("WebFetch") and _host_is_below(self._description.subject, rule.domain)
            case ShellCall():
                return False  # all of them together are one question to the shell policy
            case _:
                assert_never(rule)

    def is_allowed_by(self, rules: tuple[Rule, ...], denied: tuple[Rule, ...]) -> bool:
        if not self._opened.opens and any(self._is_named_by(rule) for rule in rules if isinstance(rule, NamedTool)):
            return True
        if self._belongs_to("Bash"):
            return self._is_allowed_shell(rules, denied)
        if any(self._belongs_to(rule.family) for rule in rules if isinstance(rule, AnyCall)):
            return True
        if self._belongs_to("WebFetch"):
            domains = (rule.domain for rule in rules if isinstance(rule, FetchCall))
            return any(_allows_url(domain, self._description.subject) for domain in domains)
        files = [rule.pattern for rule in rules if isinstance(rule, FileCall) and self._belongs_to(rule.family)]
        return bool(self._paths) and all(
            is_plain_path(path) and any(pattern.matches(path, self._workspace) for pattern in files)
            for path in self._paths
        )

    def _is_allowed_shell(self, rules: tuple[Rule, ...], denied: tuple[Rule, ...]) -> bool:
        opened = self._opened
        allow = [rule.rule for rule in rules if isinstance(rule, ShellCall) and confinement.covers(rule.opened, opened)]
        everything = [rule for rule in rules if isinstance(rule, AnyCall) and rule.family == "Bash"]
        allow += ["*" for rule in everything if confinement.covers(rule.opened, opened)]
        if any(place.path != self._workspace for place in self._description.locations):
            # The folder is a part of the call: `make`, `./build` and git mean something else in another one.
            allow = [rule for rule in allow if parse_shell_rule(rule).covers_everything]
        deny = [rule.rule for rule in denied if isinstance(rule, ShellCall)]
        return decide(self._description.subject, allow, deny) == "allow"

    def _is_opened_like(self, rule: AnyCall | ShellCall) -> bool:
        """Whether a restriction holds for what this call opens; one that names nothing holds for every call."""
        return confinement.overlaps(rule.opened, self._opened)

    def _belongs_to(self, family: Family) -> bool:
        """By what the call does. Tools of MCP servers say that about themselves, so only their names count."""
        if self._name.startswith("mcp__") or self._description.kind not in _KINDS[family]:
            return False
        return family != "Write" or self._name.casefold() == "write"

    def _is_named_by(self, rule: NamedTool) -> bool:
        if rule.fingerprint and self._description.subject != rule.fingerprint:
            return False
        return self._name.startswith(rule.name) if rule.is_prefix else self._name == rule.name


def host_of(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        return (parts.hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def _host_is_below(url: str, domain: str) -> bool:
    """A restriction of a domain holds for everything below it."""
    bare = domain.removeprefix("*.").strip("[]")
    host = host_of(url)
    return host == bare or host.endswith(f".{bare}")


def _allows_url(domain: str, url: str) -> bool:
    """Exactly this host. What parsers of URLs read differently (backslashes, blanks, user names) is never allowed."""
    host = host_of(url) if _UNAMBIGUOUS_URL.fullmatch(url) else ""
    return host != "" and (host.endswith(domain[1:]) if domain.startswith("*.") else host == domain.strip("[]"))
