"""What written rules say about tool calls."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.errors import InvalidRequest
from makai.core.session_events import FileDiff, FilePlace
from makai.tools.base import CallDescription, ToolKind
from makai.tools.permissions import rules as permission_rules
from makai.tools.permissions.path_patterns import PathPattern, parse_path_pattern
from makai.tools.permissions.rules import AnyCall, FetchCall, FileCall, NamedTool, RuleDecision, ShellCall, parse_rules

ROOT = "/srv/app"


def call(kind: ToolKind, subject: str, *more: str) -> CallDescription:
    return CallDescription(kind=kind, title="", subject=subject, locations=tuple(map(FilePlace, more)))


def decided(tool: str, description: CallDescription, **rules: list[str]) -> RuleDecision | None:
    return permission_rules.decide_call(parse_rules(workspace=ROOT, **rules), tool, description)


def test_rules_are_read_as_what_they_mean() -> None:
    texts = [
        *("Bash", "Bash(git log:*)", "Bash(*)", "Read(src/**)", "Edit(*.py)"),
        *("Write(/a)", "WebFetch(domain:Example.com.)"),
    ]
    texts += ["mcp__x", "mcp__x__*", "mcp__x__do_it", "todo", "Read(//etc/**)", "WebFetch", "WebFetch(domain:*.a.org)"]

    assert [permission_rules.parse_rule(text) for text in texts] == [
        AnyCall("Bash"),
        ShellCall("git log:*"),
        AnyCall("Bash"),
        FileCall("Read", PathPattern(("src",), is_absolute=False)),
        FileCall("Edit", PathPattern(("**", "*.py"), is_absolute=False)),
        FileCall("Write", PathPattern(("a",), is_absolute=False)),
        FetchCall("example.com"),
        NamedTool("mcp__x__", is_prefix=True),
        NamedTool("mcp__x__", is_prefix=True),
        NamedTool("mcp__x__do_it"),
        NamedTool("todo"),
        FileCall("Read", PathPattern(("etc",), is_absolute=True)),
        AnyCall("WebFetch"),
        FetchCall("*.a.org"),
    ]


@pytest.mark.req("MK-TOOL-012")
def test_a_rule_names_one_tool_of_a_tool_server_or_all_of_them() -> None:
    assert [permission_rules.parse_rule(text) for text in ("desk__look", "desk__*", "1a-b__look", "1a-b__*")] == [
        NamedTool("desk__look"),
        NamedTool("desk__", is_prefix=True),
        NamedTool("1a-b__look"),
        NamedTool("1a-b__", is_prefix=True),
    ]
    assert decided("desk__look", CallDescription(kind="other", title=""), deny=["desk__*"]) == "deny"
    assert decided("desk2__look", CallDescription(kind="other", title=""), deny=["desk__*"]) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "(", "Bash(", "Bash(git log:*", "Bash()", "Bash(g*t)", "Read()", "Read(../x)"),
        *("Read(!a)", "Read(a**)"),
        *("Read(a/../b)", "Read(a\0b)", "WebFetch(example.com)", "WebFetch(domain:)"),
        *("WebFetch(domain:a/b)", "todo(x)"),
        *("mcp__", "mcp__*", "mcp__x__*y", "mcp__x(y)", f"mcp__x({'0' * 32})", f"mcp__x__*({'0' * 32})"),
        *("mcp__x__y(z)", f"todo({'0' * 32})", "to*", "*", "Bash(ls) x", "WebFetch(domain:*)"),
        *("1abc", "mcp__x*", "a__b__*", "desk_*", "__*"),
    ],
)
def test_a_rule_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        permission_rules.parse_rule(text)

    assert "rule" in caught.value.message
    assert repr(text) in caught.value.message or text.removeprefix("Bash(").removesuffix(")") in caught.value.message


def test_a_relative_workspace_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="absolute"):
        parse_rules(workspace="app")


def test_deny_comes_before_ask_and_ask_before_allow() -> None:
    look = call("execute", "git log -3")
    rule = ["Bash(git log:*)"]

    assert [
        decided("shell", look, allow=rule, ask=rule, deny=rule),
        decided("shell", look, allow=rule, ask=rule),
        decided("shell", look, allow=rule),
        decided("shell", look),
    ] == ["deny", "ask", "allow", None]


SHELL_CASES: list[tuple[str, RuleDecision | None]] = [
    ("git log", "allow"), ("git log; touch x", None), ("git log $(rm x)", "deny"), ("make", None),
    ("git commit -m x", "ask"), ("ls; git commit", "ask"), ("git commit; rm x", "deny"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "expected"), SHELL_CASES)
def test_shell_rules_follow_the_shell_policy(command: str, expected: RuleDecision | None) -> None:
    lists = {"allow": ["Bash(git log:*)", "Bash(ls)"], "ask": ["Bash(git commit:*)"], "deny": ["Bash(rm:*)"]}

    assert decided("shell", call("execute", command), **lists) == expected


def test_every_shell_command_can_be_allowed_but_for_some() -> None:
    commands = ["make > log", "for i in *; do echo $i; done", "sudo rm x", "$UNKNOWN x"]

    answers = [decided("shell", call("execute", text), allow=["Bash"], deny=["Bash(rm:*)"]) for text in commands]

    assert answers == ["allow", "allow", "deny", None]


PATHS: dict[str, tuple[list[str], list[str]]] = {
    "src/**": (
        ["src/a.py", "src/a/b/c.py", "src", "/srv/app/src/a.py", "src/./a//b.py"],
        [
            *("srcx/a.py", "lib/src/a.py", "/srv/app-secret/src/a.py", "/srv/appsrc/a.py", "src/../etc/passwd"),
            *("/etc/passwd", "SRC/a.py"),
        ],
    ),
    "src": (["lib/src/a.py"], []),
    "/src": ([], ["lib/src/a.py"]),
    "src/": (["src/a.py"], []),
    "*.py": (["a/b/c.py"], ["a.pyc"]),
    "a/*.py": (["a/b.py"], ["a/b/c.py"]),
    "a/?.py": (["a/b.py"], ["a/bb.py"]),
    "a/**/z": (["a/z", "a/b/c/z"], ["a/b/c/zz"]),
    "**/x/*.md": (["p/q/x/r.md"], []),
    "a[b]": (["a[b]"], ["ab"]),
    "a.py": ([], ["axpy"]),
    "**": (["a/b", "."], ["/etc/passwd"]),
    "//etc/**": (["/etc/passwd"], ["etc/passwd"]),
    "//**": (["/anything"], []),
}
"""For each pattern the paths that it means, and those that it does not."""


@pytest.mark.parametrize("pattern", PATHS)
def test_a_path_is_meant_by_whole_components(pattern: str) -> None:
    meant, others = PATHS[pattern]
    answers = {path: decided("read", call("read", path), allow=[f"Read({pattern})"]) for path in (*meant, *others)}

    assert answers == {**dict.fromkeys(meant, "allow"), **dict.fromkeys(others)}


def test_a_path_that_climbs_is_never_allowed_but_can_be_denied() -> None:
    climbing = call("read", "src/../src/a.py")

    assert decided("read", climbing, allow=["Read(src/**)"]) is None
    assert decided("read", climbing, deny=["Read(src/**)"]) == "deny"
    assert decided("read", call("read", "lib/../.env"), deny=["Read(.env)"]) == "deny"


def test_a_restriction_holds_for_other_spellings_of_a_name() -> None:
    spellings = [".ENV", "a/.Env", "./.env", "/srv/app/.env", "cafe\u0301/.env"]

    assert [decided("read", call("read", path), deny=["Read(.env)"]) for path in spellings] == ["deny"] * len(spellings)
    assert decided("read", call("read", "cafe\u0301"), deny=["Read(caf\u00e9)"]) == "deny"


def test_all_files_of_a_call_must_be_allowed_and_one_is_enough_to_deny() -> None:
    both = call("edit", "src/a.py", "docs/b.md")
    changes = CallDescription(
        kind="edit", title="", subject="src/a.py", diffs=(FileDiff(path="docs/b.md", old_text=None, new_text=""),)
    )

    assert [decided("edit", each, allow=["Edit(src/**)"]) for each in (both, changes)] == [None, None]
    assert [decided("edit", each, deny=["Edit(docs/**)"]) for each in (both, changes)] == ["deny", "deny"]
    assert decided("edit", both, allow=["Edit(src/**)", "Edit(docs/*.md)"]) == "allow"


def test_each_family_speaks_about_its_own_kind_of_call() -> None:
    rules = ["Bash", "Read", "Edit", "Write", "WebFetch"]
    calls: dict[str, ToolKind] = {"shell": "execute", "read": "read", "grep": "search", "edit": "edit", "write": "edit"}
    calls |= {"fetch": "fetch", "plan": "think", "mcp__x__y": "execute", "other": "other"}

    def families(tool: str) -> list[str]:
        return [rule for rule in rules if decided(tool, call(calls[tool], "x"), deny=[rule])]

    of_files = {"read": ["Read"], "grep": ["Read"], "edit": ["Edit"], "write": ["Edit", "Write"]}
    others = {"shell": ["Bash"], "fetch": ["WebFetch"], "plan": [], "mcp__x__y": [], "other": []}
    assert {tool: families(tool) for tool in calls} == of_files | others


def test_tools_of_a_server_are_meant_by_name_only() -> None:
    def answer(tool: str, rule: str) -> RuleDecision | None:
        return decided(tool, call("other", "x"), allow=[rule])

    assert [answer("mcp__x__y", rule) for rule in ("mcp__x__*", "mcp__x", "mcp__x__y")] == ["allow"] * 3
    assert [answer("mcp__x__y", rule) for rule in ("mcp__x__z", "mcp__xx", "mcp__x__y2", "y", "Read")] == [None] * 5
    assert answer("mcp__x2__y", "mcp__x") is None
    assert answer("todo", "todo") == "allow"


ALLOWED_URLS = ["https://example.com", "http://EXAMPLE.com./a?b=c#d", "https://example.com:8443/x"]
OTHER_URLS = [
    *("https://a.example.com", "https://example.com.evil.org", "https://evil.org/example.com", "", "https://["),
    *("https://example.com@evil.org", "https://evil.org\\@example.com", "https://user@example.com/", "example.com"),
    *("ftp://example.com", "file:///example.com", "https://example.com\n.evil.org", " https://example.com"),
    *("https://exаmple.com", "https://evil.org#@example.com"),
]


def test_a_domain_is_allowed_exactly_and_only_in_urls_that_read_one_way() -> None:
    def answer(url: str, rule: str) -> RuleDecision | None:
        return decided("fetch", call("fetch", url), allow=[rule])

    assert [url for url in ALLOWED_URLS if answer(url, "WebFetch(domain:example.com)") != "allow"] == []
    assert [url for url in OTHER_URLS if answer(url, "WebFetch(domain:example.com)") is not None] == []
    assert answer("https://a.b.example.com/x", "WebFetch(domain:*.example.com)") == "allow"
    assert answer("https://example.com/x", "WebFetch(domain:*.example.com)") is None
    assert answer("http://[::1]/x", "WebFetch(domain:[::1])") == "allow"


def test_a_denied_domain_is_denied_with_all_below_it() -> None:
    urls = ["https://example.com", "https://a.example.com", "http://user@EXAMPLE.com./", "https://notexample.com"]

    answers = [decided("fetch", call("fetch", url), deny=["WebFetch(domain:example.com)"]) for url in urls]

    assert answers == ["deny", "deny", "deny", None]


def test_a_search_can_leave_denied_files_out() -> None:
    rules = parse_rules(workspace=ROOT, deny=["Read(secrets/**)", "Edit(docs/**)"])

    denied = permission_rules.denied_paths(rules, "Read")
    assert [denied.cover(path) for path in ("secrets/a", "docs/a", "src/a")] == [True, False, False]


RULES = st.sampled_from(
    [
        *("Bash", "Bash(git log:*)", "Bash(ls:*)", "Bash(rm:*)", "Read", "Read(src/**)", "Read(*.py)", "Edit(src/**)"),
        *("Edit", "Write(a)", "WebFetch", "WebFetch(domain:a.org)", "mcp__x", "mcp__x__y", "todo"),
    ]
)
CALLS = st.sampled_from(
    [
        ("shell", call("execute", "git log -3")),
        ("shell", call("execute", "ls; rm x")),
        ("shell", call("execute", "$x")),
        ("read", call("read", "src/a.py")),
        ("grep", call("search", ".")),
        ("edit", call("edit", "src/a.py", "b.py")),
        ("write", call("edit", "a")),
        ("fetch", call("fetch", "https://a.org/x")),
        ("mcp__x__y", call("other", "")),
        ("todo", call("think", "")),
    ]
)
LISTS = st.lists(RULES, max_size=4)
SEVERITY: dict[RuleDecision | None, int] = {"allow": 0, None: 1, "ask": 2, "deny": 3}


@given(CALLS, LISTS, LISTS, LISTS, RULES)
def test_a_further_restriction_is_never_milder_a_further_allowance_lifts_none_and_order_does_not_matter(
    tried: tuple[str, CallDescription], allow: list[str], ask: list[str], deny: list[str], rule: str
) -> None:
    before = decided(*tried, allow=allow, ask=ask, deny=deny)
    after = decided(*tried, allow=[*allow, rule], ask=ask, deny=deny)

    assert SEVERITY[decided(*tried, allow=allow, ask=ask, deny=[*deny, rule])] >= SEVERITY[before]
    assert SEVERITY[decided(*tried, allow=allow, ask=[*ask, rule], deny=deny)] >= SEVERITY[before]
    assert after == before or (before is None and after == "allow")
    assert decided(*tried, allow=allow[::-1], ask=ask[::-1], deny=deny[::-1]) == before


NAMES = st.text(alphabet="ab*?.[", min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..") and "**" not in name
)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_a_pattern_matches_itself_and_what_is_below_it_but_no_longer_name(names: list[str]) -> None:
    path = "/".join(names)
    pattern = parse_path_pattern(f"/{path}")

    assert pattern is not None
    assert pattern.matches(path, ROOT)
    assert pattern.matches(f"{path}/x", ROOT)
    assert pattern.matches(path, f"{ROOT}-secret")  # relative to whichever workspace is given
    assert not pattern.matches(f"{ROOT}-secret/{path}", ROOT)


def written_as_expression(pattern: str) -> re.Pattern[str]:
    """What a pattern with a leading slash means, said in another way."""
    names = [
        "(?:[^/]+/)*" if name == "**" else re.escape(name).replace(r"\*", "[^/]*").replace(r"\?", "[^/]") + "/"
        for name in pattern.split("/")[1:]
    ]
    return re.compile("".join(names).removesuffix("/") + "(?:/.*)?")


SHORT_NAMES = st.sampled_from(["a", "b", "ab", "ba", "[a]", "A", "a.b"])
SHORT_PATTERNS = st.sampled_from(["a", "b", "*", "a*", "*b", "?", "a?b", "*a*b*", "[a]", "A", "**"])


@given(st.lists(SHORT_PATTERNS, min_size=1, max_size=5), st.lists(SHORT_NAMES, min_size=1, max_size=6))
def test_a_pattern_means_what_its_expression_means(names: list[str], path: list[str]) -> None:
    while names[-1:] == ["**"]:  # which every pattern has in effect
        names.pop()
    pattern = parse_path_pattern("/" + "/".join(names))
    expected = not names or written_as_expression("/" + "/".join(names)).fullmatch("/".join(path)) is not None

    assert pattern is not None
    assert pattern.matches("/".join(path), ROOT) is expected


def test_a_path_longer_than_any_file_has_is_forbidden_by_every_pattern_and_allowed_by_none() -> None:
    path = "a/" * 500_000

    assert decided("read", call("read", path), deny=["Read(.env)"]) == "deny"
    assert decided("read", call("read", path), allow=["Read(a/**)"]) is None
