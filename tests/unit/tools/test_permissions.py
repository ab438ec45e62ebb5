"""What mode, rules and grants say about a call together."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.confinement import Confinement
from makai.core.errors import InvalidRequest
from makai.core.session_events import FileDiff, FilePlace, PermissionMode
from makai.tools.base import CallDescription, ToolKind
from makai.tools.permissions.judge import NEVER_ASKS_REASON, PLAN_REASON, Verdict, judge
from makai.tools.permissions.rules import PermissionRules, parse_rules

ROOT = "/srv/app"
FINGERPRINT = "0123456789abcdef" * 2
MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)


def file_call(kind: ToolKind, path: str, *, protected: bool = False) -> CallDescription:
    place = path if path.startswith("/") else f"{ROOT}/{path}"
    diffs = (FileDiff(path=place, old_text="a", new_text="b"),) if kind == "edit" else ()
    return CallDescription(
        kind=kind, title="", subject=path, locations=(FilePlace(place),), diffs=diffs, protected=protected
    )


def command(text: str, folder: str = ROOT) -> CallDescription:
    return CallDescription(kind="execute", title="", subject=text, locations=(FilePlace(folder),))


READ = ("read", file_call("read", "src/a.py"))
GREP = ("grep", file_call("search", "."))
PLAN = ("plan", CallDescription(kind="think", title=""))
EDIT = ("edit", file_call("edit", "src/a.py"))
WRITE = ("write", file_call("edit", "/other/place/new"))
HOOK = ("write", file_call("edit", ".git/hooks/pre-commit", protected=True))
LOOK = ("shell", command("git log --oneline"))
TEST = ("shell", command("pytest -q"))
FETCH = ("fetch", CallDescription(kind="fetch", title="", subject="https://docs.example.com/a?b=c"))
MCP = ("mcp__files__write", CallDescription(kind="other", title="", subject=FINGERPRINT))
MCP_READ = ("mcp__files__read", CallDescription(kind="read", title="", subject=FINGERPRINT))
Called = tuple[str, CallDescription]
ALL = (READ, GREP, PLAN, EDIT, WRITE, HOOK, LOOK, TEST, FETCH, MCP, MCP_READ)


def rules(*, allow: str = "", ask: str = "", deny: str = "") -> PermissionRules:
    """Rules, separated by blanks that are not in parentheses: here by semicolons."""
    return parse_rules(workspace=ROOT, allow=_split(allow), ask=_split(ask), deny=_split(deny))


def _split(text: str) -> list[str]:
    return [rule.strip() for rule in text.split(";") if rule.strip()]


def decided(mode: PermissionMode, call: Called, written: PermissionRules | None = None) -> str:
    return judge(mode, written or rules(), (), *call).decision


@pytest.mark.parametrize(
    ("call", "ask", "accept_edits", "plan", "never_ask"),
    [
        (READ, "allow", "allow", "allow", "allow"),
        (GREP, "allow", "allow", "allow", "allow"),
        (PLAN, "allow", "allow", "allow", "allow"),
        (EDIT, "ask", "allow", "deny", "allow"),
        (WRITE, "ask", "allow", "deny", "allow"),
        (HOOK, "ask", "ask", "deny", "allow"),
        (LOOK, "ask", "ask", "ask", "allow"),
        (TEST, "ask", "ask", "deny", "allow"),
        (FETCH, "ask", "ask", "ask", "allow"),
        (MCP, "ask", "ask", "deny", "allow"),
        (MCP_READ, "ask", "ask", "ask", "allow"),
    ],
)
def test_without_rules_the_mode_decides(call: Called, ask: str, accept_edits: str, plan: str, never_ask: str) -> None:
    assert [decided(mode, call) for mode in MODES] == [ask, accept_edits, plan, never_ask]


@pytest.mark.parametrize(
    ("call", "allow", "expected"),
    [
        (EDIT, "Edit(src/**)", ["allow", "allow", "deny", "allow"]),
        (EDIT, "Edit(docs/**)", ["ask", "allow", "deny", "allow"]),
        (WRITE, "Edit", ["allow", "allow", "deny", "allow"]),
        (HOOK, "Edit; Edit(.git/**)", ["ask", "ask", "deny", "allow"]),
        # Without a sandbox nothing keeps it from writing, so plan mode asks.
        (LOOK, "Bash(git log:*)", ["allow", "allow", "ask", "allow"]),
        (LOOK, "Bash(git)", ["ask", "ask", "ask", "allow"]),
        (TEST, "Bash(pytest:*)", ["allow", "allow", "deny", "allow"]),
        (TEST, "Bash", ["allow", "allow", "deny", "allow"]),
        (("shell", command("pytest -q && rm -rf /")), "Bash(pytest:*)", ["ask", "ask", "deny", "allow"]),
        (("shell", command("pytest -q", f"{ROOT}/vendor")), "Bash(pytest:*)", ["ask", "ask", "deny", "allow"]),
        (("shell", command("pytest -q", f"{ROOT}/vendor")), "Bash(*)", ["allow", "allow", "deny", "allow"]),
        (FETCH, "WebFetch(domain:docs.example.com)", ["allow", "allow", "allow", "allow"]),
        (FETCH, "WebFetch(domain:example.com)", ["ask", "ask", "ask", "allow"]),
        (MCP, "mcp__files", ["allow", "allow", "deny", "allow"]),
        (MCP, f"mcp__files__write({FINGERPRINT})", ["allow", "allow", "deny", "allow"]),
        (MCP, f"mcp__files__write({FINGERPRINT[::-1]})", ["ask", "ask", "deny", "allow"]),
        (MCP_READ, "mcp__files__*", ["allow", "allow", "allow", "allow"]),
    ],
)
def test_an_allow_rule_counts_when_it_covers_the_whole_call(call: Called, allow: str, expected: list[str]) -> None:
    assert [decided(mode, call, rules(allow=allow)) for mode in MODES] == expected
    for mode in MODES:  # a grant is worth as much as a rule
        assert judge(mode, rules(), [(rule, True) for rule in _split(allow)], *call).decision == decided(
            mode, call, rules(allow=allow)
        )


DENIALS = "Read; Edit; Bash; WebFetch; mcp__files; plan"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", ALL)
def test_a_deny_rule_beats_everything(mode: PermissionMode, call: Called) -> None:
    allowed = "Read; Edit; Bash; WebFetch; mcp__files; plan"
    forbidden = Verdict(decision="deny", by="rule", reason="A permission rule forbids this.")

    assert judge(mode, rules(allow=allowed, deny=DENIALS), (), *call) == forbidden
    assert judge(mode, rules(allow=allowed), [(rule, False) for rule in _split(DENIALS)], *call) == forbidden
    assert judge(mode, rules(deny=DENIALS), [(rule, True) for rule in _split(allowed)], *call) == forbidden


@pytest.mark.parametrize("call", ALL)
def test_an_ask_rule_beats_allow_rules_grants_and_modes_but_not_never_ask(call: Called) -> None:
    written = rules(allow=DENIALS, ask=DENIALS)
    asked = Verdict(decision="ask", by="rule", reason="A permission rule wants this to be asked.")

    assert judge("ask", written, [(rule, True) for rule in _split(DENIALS)], *call) == asked
    assert judge("accept_edits", written, (), *call) == asked
    assert judge("never_ask", written, (), *call).decision == "allow"


def test_plan_mode_tells_the_model_what_it_may_do() -> None:
    assert judge("plan", rules(), (), *EDIT) == Verdict(decision="deny", by="mode", reason=PLAN_REASON)


@pytest.mark.parametrize("text", ["ls -la", "cat a | grep b", "git status", "find . -name x", "rg needle", "pwd"])
def test_commands_that_only_look_are_not_denied_in_plan_mode(text: str) -> None:
    assert decided("plan", ("shell", command(text))) == "ask"


@pytest.mark.parametrize(
    "text", ["ls > a", "find . -delete", "sort -o a b", "git branch x", "ls; rm a", "$(ls)", "date -s 0", "git push"]
)
def test_what_may_change_something_is_denied_in_plan_mode_whatever_rules_say(text: str) -> None:
    assert decided("plan", ("shell", command(text)), rules(allow="Bash")) == "deny"


def test_a_tool_of_a_client_is_allowed_unless_a_rule_names_it() -> None:
    described = CallDescription(kind="other", title="lookup", subject="lookup")

    def verdict(mode: PermissionMode, **written: str) -> str:
        return judge(mode, rules(**written), (), "lookup", described, is_clients_own=True).decision

    assert [verdict(mode) for mode in MODES] == ["allow"] * 4
    assert [verdict(mode, deny="lookup") for mode in MODES] == ["deny"] * 4
    assert [verdict(mode, ask="lookup") for mode in MODES] == ["ask", "ask", "ask", "allow"]


def test_without_a_sandbox_every_command_is_asked_about_and_nothing_else() -> None:
    bare = msgspec.structs.replace(rules(allow="Bash"), asks_every_command=True)
    reason = "No sandbox works here, so the command would run unconfined."

    for mode in ("ask", "accept_edits", "never_ask"):
        assert judge(mode, bare, [("Bash", True)], *TEST) == Verdict(decision="ask", by="rule", reason=reason)
    assert [decided(mode, TEST, bare) for mode in ("plan",)] == ["deny"]
    assert [decided("never_ask", call, bare) for call in (READ, EDIT, HOOK, FETCH, MCP)] == ["allow"] * 5
    assert decided("never_ask", TEST, msgspec.structs.replace(bare, deny=rules(deny="Bash").deny)) == "deny"


@pytest.mark.parametrize(
    ("call", "grant"),
    [
        (EDIT, "Edit(./src/a.py)"),
        (WRITE, "Edit(//other/place/new)"),
        (("edit", file_call("edit", "README.md")), "Edit(./README.md)"),
        (("edit", file_call("edit", "odd (1).md")), "Edit(./odd (1).md)"),
        (("edit", file_call("edit", "a*.py")), ""),
        (("edit", file_call("edit", "trailing ")), ""),
        (("edit", file_call("edit", "odd\\x1b")), ""),
        (HOOK, ""),
        (FETCH, "WebFetch(domain:docs.example.com)"),
        (("fetch", CallDescription(kind="fetch", title="", subject="http://[::1]/")), ""),
        (MCP, f"mcp__files__write({FINGERPRINT})"),
        (MCP_READ, f"mcp__files__read({FINGERPRINT})"),
        (LOOK, "Bash(git log:*)"),
        (TEST, "Bash(pytest -q)"),
    ],
)
def test_the_grant_is_the_narrowest_rule_that_covers_the_call(call: Called, grant: str) -> None:
    assert judge("ask", rules(), (), *call).grant == grant


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        ("git commit -m 'two words'", "Bash(git commit:*)"),
        ("git log --output=x", "Bash(git log --output=x)"),
        ("git push --force", "Bash(git push --force)"),
        ("cargo build --release", "Bash(cargo build --release)"),
        ("npm run build", "Bash(npm run build)"),
        ("make test", "Bash(make test)"),
        *(
            (text, "")
            for text in (
                *("git", "git -C x status", "git -c a=b commit", "make -f x", "make SHELL=x all"),
                *("npm exec x", "npm x"),
                *("bash -c ls", "sh x.sh", "python -c 1", "python3.11 a.py", "node a", "perl a", "sudo ls", "env ls"),
                *("xargs rm", "timeout 5 ls", "docker run x", "ssh host", "npx x", "uv run x", "./run.sh", "/bin/ls"),
                *("a && b", "a | b", "a; b", "ls > x", "ls $HOME", "ls *.py", "FOO=1 ls", "eval ls", "echo 'a b'"),
                *("grep 'a*' b", f"ls {'x' * 300}", "", "export A=b", "source a"),
            )
        ),
    ],
)
def test_a_grant_for_a_command_does_not_cover_more_than_a_person_saw(text: str, grant: str) -> None:
    assert judge("ask", rules(), (), "shell", command(text)).grant == grant


def test_no_grant_is_offered_for_a_command_in_another_folder() -> None:
    assert judge("ask", rules(), (), "shell", command("make test", f"{ROOT}/vendor")).grant == ""


@pytest.mark.parametrize(
    ("call", "widths"),
    [
        (EDIT, ["Edit(./src/a.py)", "Edit(./src/**)", "Edit"]),
        (("edit", file_call("edit", "README.md")), ["Edit(./README.md)", "Edit"]),
        (WRITE, ["Edit(//other/place/new)", "Edit(//other/place/**)", "Edit"]),
        (TEST, ["Bash(pytest -q)", "Bash(pytest:*)"]),
        (LOOK, ["Bash(git log --oneline)", "Bash(git log:*)"]),
        (("shell", command("npm run build")), ["Bash(npm run build)", "Bash(npm run build:*)"]),
        (("shell", command("cargo test foo")), ["Bash(cargo test foo)", "Bash(cargo test:*)"]),
        (("shell", command("rm -rf build")), ["Bash(rm -rf build)"]),
        (("shell", command("make 2>&1")), ["Bash(make)"]),
        (("shell", command("pytest -q >/dev/null 2>&1")), ["Bash(pytest -q)", "Bash(pytest:*)"]),
        (("shell", command("make >log 2>&1")), []),
        (("shell", command("make </dev/null")), []),
        (("shell", command("git push origin main")), ["Bash(git push origin main)"]),
        (("shell", command("git commit -m 'two words'")), ["Bash(git commit:*)"]),
        (("shell", command("bash -c ls")), []),
        (FETCH, ["WebFetch(domain:docs.example.com)"]),
        (MCP, [f"mcp__files__write({FINGERPRINT})"]),
        (HOOK, []),
    ],
)
def test_a_question_offers_widths_from_narrow_to_wide(call: Called, widths: list[str]) -> None:
    offered = judge("ask", rules(), (), *call).grants

    assert [grant.rule for grant in offered] == widths
    assert [grant.rule for grant in offered if grant.session_only] == [rule for rule in widths if rule == "Edit"]
    assert all(grant.label for grant in offered)


@pytest.mark.parametrize("call", ALL)
def test_what_was_granted_is_not_asked_again(call: Called) -> None:
    asked = judge("ask", rules(), (), *call)
    assert (asked.grant in [grant.rule for grant in asked.grants]) is bool(asked.grants)
    for grant in asked.grants:
        again = judge("ask", rules(), [(grant.rule, True)], *call)
        assert again == Verdict(decision="allow", by="rule", reason="A permission rule allows this.")
        assert judge("never_ask", rules(), [(grant.rule, False)], *call).decision == "deny"


def opening(text: str, **opened: Any) -> Called:
    return "shell", msgspec.structs.replace(command(text), confinement=Confinement(**opened))


COMMIT = opening("git commit -m x", git=True)
INSTALL = opening("pip install x", network=("files.example.net", "index.example.org"))
LOOKS_AND_OPENS = opening("ls", network=("example.com",))
DOCKER = opening("docker build .", unsandboxed=True)
BUILD = opening("make dist", folders=("/srv/dist",))


@pytest.mark.parametrize("call", [COMMIT, INSTALL, LOOKS_AND_OPENS, DOCKER, BUILD])
def test_more_than_the_sessions_sandbox_is_a_question_in_every_mode_that_asks(call: Called) -> None:
    for allow in ("", "Bash", "Bash(*)", "shell", f"Bash({call[1].subject})", "Edit; Read"):
        assert [decided(mode, call, rules(allow=allow)) for mode in MODES] == ["ask", "ask", "deny", "deny"], allow
    assert judge("never_ask", rules(), (), *call).reason == NEVER_ASKS_REASON


@pytest.mark.parametrize(
    ("call", "allow", "allowed"),
    [
        (COMMIT, "Bash(git commit:*)+git", True),
        (COMMIT, "Bash+git", True),
        (COMMIT, "Bash(git commit:*)+network", False),
        (COMMIT, "Bash(git commit:*); Bash(git push:*)+git", False),
        (opening("git add -A && git commit -m x", git=True), "Bash(git commit:*)+git; Bash(git add:*)+git", True),
        (opening("git add -A && git commit -m x", git=True), "Bash(git commit:*)+git; Bash(git add:*)", False),
        (opening("git commit -m x && curl x", git=True), "Bash(git commit:*)+git", False),
        (INSTALL, "Bash(pip install:*)+network(index.example.org,*.example.net)", True),
        (INSTALL, "Bash(pip install:*)+network(index.example.org)", False),
        (INSTALL, "Bash(pip install:*)+network", True),
        (BUILD, "Bash(make dist)+write(/srv)", True),
        (BUILD, "Bash(make dist)+write(/srv/dist/a)", False),
        (DOCKER, "Bash(docker build .)+network+git+write(/)", False),
        (DOCKER, "Bash(docker build .)+no-sandbox", True),
        (("shell", command("git commit -m x")), "Bash(git commit:*)+git", True),
    ],
)
def test_a_rule_covers_a_call_when_it_covers_command_and_confinement(call: Called, allow: str, allowed: bool) -> None:
    expected = ["allow", "allow", "deny", "allow"] if allowed else ["ask", "ask", "deny", "deny"]
    assert [decided(mode, call, rules(allow=allow)) for mode in MODES] == expected
    assert [
        judge(mode, rules(), [(rule, True) for rule in _split(allow)], *call).decision for mode in MODES
    ] == expected


@pytest.mark.parametrize("call", [COMMIT, INSTALL, DOCKER, BUILD])
def test_a_restriction_of_a_command_holds_in_every_confinement(call: Called) -> None:
    allow = "Bash+git+network+write(/)+no-sandbox"
    program = call[1].subject.split()[0]

    assert {decided(mode, call, rules(allow=allow, deny=f"Bash({program}:*)")) for mode in MODES} == {"deny"}
    assert decided("ask", call, rules(allow=allow, ask=f"Bash({program}:*)")) == "ask"


def test_a_restriction_may_be_about_what_is_opened() -> None:
    written = rules(
        allow="Bash; Bash+git+network+no-sandbox", deny="Bash+no-sandbox; Bash(pip:*)+network(index.example.org)"
    )

    assert [decided("ask", call, written) for call in (TEST, COMMIT, INSTALL, DOCKER)] == [
        *("allow", "allow", "deny", "deny")
    ]


@pytest.mark.parametrize(
    ("call", "widths"),
    [
        (COMMIT, [("Bash(git commit -m x)+git", False), ("Bash(git commit:*)+git", False)]),
        (INSTALL, [("Bash(pip install x)+network(files.example.net,index.example.org)", False)]),
        (opening("npm test", network=("*",)), [("Bash(npm test)+network", False), ("Bash(npm test:*)+network", False)]),
        (BUILD, [("Bash(make dist)+write(/srv/dist)", False)]),
        (opening("make image", unsandboxed=True), [("Bash(make image)+no-sandbox", True)]),
        (DOCKER, []),
        (opening("make dist", folders=("/srv/a(b)",)), []),
        (opening("python -m venv .venv && .venv/bin/pip install x", network=("index.example.org",)), []),
    ],
)
def test_what_is_offered_opens_exactly_what_was_asked(call: Called, widths: list[tuple[str, bool]]) -> None:
    asked = judge("ask", rules(), (), *call)

    assert [(grant.rule, grant.session_only) for grant in asked.grants] == widths
    for grant in asked.grants:
        assert judge("ask", rules(), [(grant.rule, True)], *call).decision == "allow"
        more = msgspec.structs.replace(call[1].confinement, folders=("/another",), git=True, network=("*",))
        if not call[1].confinement.unsandboxed:
            described = msgspec.structs.replace(call[1], confinement=more)
            assert judge("ask", rules(), [(grant.rule, True)], "shell", described).decision == "ask"


def test_what_was_denied_stays_denied_when_the_server_changes_its_description() -> None:
    changed = msgspec.structs.replace(MCP[1], subject="f" * 32)
    grant = judge("ask", rules(), (), *MCP).grant

    assert judge("ask", rules(), [(grant, True)], MCP[0], changed).decision == "ask"
    assert judge("ask", rules(), [(grant, False)], MCP[0], changed).decision == "deny"


def test_a_grant_that_cannot_be_read_is_not_ignored() -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        judge("never_ask", rules(), [("Edit(../x)", False)], *EDIT)


# Laws ----------------------------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(
    [
        *("Read", "Edit", "Bash", "WebFetch", "Edit(src/**)", "Read(src/**)", "Bash(git log:*)", "Bash(pytest:*)"),
        *("Bash(*)", "mcp__files", "mcp__files__write", "WebFetch(domain:docs.example.com)", "plan", "edit", "shell"),
    ]
)
SOME = st.lists(TEXTS, max_size=4)
GRANTS = st.lists(st.tuples(TEXTS, st.booleans()), max_size=4)
CALLS = st.one_of(
    st.sampled_from(ALL),
    st.builds(lambda text: ("shell", command(text)), st.text(max_size=40)),
    st.builds(lambda url: ("fetch", CallDescription(kind="fetch", title="", subject=url)), st.text(max_size=40)),
    st.builds(lambda path: ("edit", file_call("edit", path)), st.text(min_size=1, max_size=40)),
)


@given(mode=st.sampled_from(MODES), allow=SOME, ask=SOME, deny=SOME, grants=GRANTS, call=CALLS, own=st.booleans())
def test_laws(
    mode: PermissionMode,
    allow: list[str],
    ask: list[str],
    deny: list[str],
    grants: list[tuple[str, bool]],
    call: Called,
    own: bool,
) -> None:
    name, description = call
    written = parse_rules(workspace=ROOT, allow=allow, ask=ask, deny=deny)
    verdict = judge(mode, written, grants, name, description, is_clients_own=own)
    denied = parse_rules(workspace=ROOT, deny=[*deny, *(rule for rule, allows in grants if not allows)])

    # Deny always wins, and nothing but a rule or plan mode denies.
    if judge("never_ask", denied, (), name, description).decision == "deny":
        assert (verdict.decision, verdict.by) == ("deny", "rule")
    elif verdict.decision == "deny":
        assert (mode, verdict.by) == ("plan", "mode")
    # Plan mode never allows an edit, nor asks about one.
    if mode == "plan" and description.kind == "edit" and not own:
        assert verdict.decision == "deny"
    # A protected file is never written without a person, but with full access.
    if description.protected and mode != "never_ask" and not own:
        assert verdict.decision != "allow"
    # A grant is offered only with a question, and would have answered it, this call and no broader tool.
    if verdict.grant:
        assert verdict.decision == "ask"
        assert judge(mode, written, [*grants, (verdict.grant, True)], name, description).decision == "allow"
    # More rules that deny never allow more.
    if verdict.decision != "allow":
        more = parse_rules(workspace=ROOT, allow=allow, ask=ask, deny=[*deny, "Read(x)", "Bash(rm:*)"])
        assert judge(mode, more, grants, name, description, is_clients_own=own).decision != "allow"
