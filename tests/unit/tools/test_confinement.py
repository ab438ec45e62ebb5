"""What rules open, and whether that covers or meets what a call asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.errors import InvalidRequest
from makai.tools.permissions.confinement import covers, overlaps, parse_suffix, suffix_of, wanted_hosts
from makai.tools.permissions.rules import AnyCall, ShellCall, parse_rule

ALL_OF_IT = Confinement(network=("*",))
INDEX = Confinement(network=("files.example.net", "index.example.org"))
GIT = Confinement(git=True)
DIST = Confinement(folders=("/srv/dist",))
NO_SANDBOX = Confinement(unsandboxed=True)


@pytest.mark.parametrize(
    ("rule", "parsed"),
    [
        ("Bash(git commit:*)+git", ShellCall("git commit:*", GIT)),
        ("Bash(pip install:*)+network(Index.Example.org, files.example.net)", ShellCall("pip install:*", INDEX)),
        ("Bash(npm test:*)+network", ShellCall("npm test:*", ALL_OF_IT)),
        ("Bash(make dist)+write(/srv/dist/)", ShellCall("make dist", DIST)),
        (
            "Bash(make dist)+write(/b)+git+write(/a)",
            ShellCall("make dist", Confinement(git=True, folders=("/a", "/b"))),
        ),
        ("Bash(docker build .)+no-sandbox", ShellCall("docker build .", NO_SANDBOX)),
        ("Bash+network(index.example.org)", AnyCall("Bash", Confinement(network=("index.example.org",)))),
        ("Bash(echo (a)+b(c))", ShellCall("echo (a)+b(c)")),
        ("Bash(git commit:*)", ShellCall("git commit:*")),
    ],
)
def test_a_rule_ends_in_what_it_opens(rule: str, parsed: object) -> None:
    assert parse_rule(rule) == parsed


@pytest.mark.parametrize(
    "rule",
    [
        *("Bash(x)+gitt", "Bash(x)+git(y)", "Bash(x)+network()", "Bash(x)+network(a b)", "Bash(x)+network(10.0.0.1)"),
        *("Bash(x)+write", "Bash(x)+write(relative)", "Bash(x)+no-sandbox(x)", "Bash(x)+network(*.com)"),
        *("Read(x)+git", "Edit+network", "WebFetch(domain:a.com)+network", "mcp__server__tool+git", "lookup+git"),
    ],
)
def test_what_cannot_be_opened_makes_a_rule_unreadable(rule: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_rule(rule)


@pytest.mark.parametrize(
    ("granted", "wanted", "covered"),
    [
        (SESSION_SANDBOX, SESSION_SANDBOX, True),
        (GIT, SESSION_SANDBOX, True),
        (SESSION_SANDBOX, GIT, False),
        (GIT, Confinement(git=True, network=("index.example.org",)), False),
        (ALL_OF_IT, INDEX, True),
        (INDEX, ALL_OF_IT, False),
        (INDEX, Confinement(network=("index.example.org",)), True),
        (INDEX, Confinement(network=("index.example.org:8443",)), False),
        (INDEX, Confinement(network=("index.example.org:443",)), True),
        (Confinement(network=("index.example.org:443",)), Confinement(network=("index.example.org",)), False),
        (Confinement(network=("*.example.com",)), Confinement(network=("registry.example.com",)), True),
        (Confinement(network=("*.example.com",)), Confinement(network=("example.com",)), False),
        (Confinement(network=("*.example.com",)), Confinement(network=("*.a.example.com",)), True),
        (Confinement(network=("example.com",)), Confinement(network=("*.example.com",)), False),
        (Confinement(network=("*.example.com",)), Confinement(network=("evilexample.com",)), False),
        (DIST, Confinement(folders=("/srv/dist/a",)), True),
        (DIST, Confinement(folders=("/srv/dist-other",)), False),
        (DIST, Confinement(folders=("/srv",)), False),
        (Confinement(network=("*",), git=True, folders=("/",)), NO_SANDBOX, False),
        (NO_SANDBOX, Confinement(git=True, network=("*",)), True),
    ],
)
def test_a_grant_covers_what_is_not_more_than_it(granted: Confinement, wanted: Confinement, covered: bool) -> None:
    assert covers(granted, wanted) is covered


@pytest.mark.parametrize(
    ("restricted", "wanted", "meets"),
    [
        (SESSION_SANDBOX, SESSION_SANDBOX, True),
        (SESSION_SANDBOX, GIT, True),
        (GIT, SESSION_SANDBOX, False),
        (NO_SANDBOX, ALL_OF_IT, False),
        (GIT, NO_SANDBOX, True),
        (ALL_OF_IT, INDEX, True),
        (Confinement(network=("*.index.example.org",)), INDEX, True),
        (Confinement(network=("example.com",)), INDEX, False),
        (Confinement(network=("example.com",)), ALL_OF_IT, True),
        (Confinement(folders=("/srv/dist/a",)), Confinement(folders=("/srv",)), True),
        (Confinement(folders=("/etc",)), Confinement(folders=("/srv",)), False),
    ],
)
def test_a_restriction_holds_for_anything_in_common(restricted: Confinement, wanted: Confinement, meets: bool) -> None:
    assert overlaps(restricted, wanted) is meets


HOSTS = st.lists(
    st.sampled_from(["index.example.org", "*.example.com", "a.example.com", "example.com:8443", "*"]), max_size=3
)
FOLDERS = st.lists(st.sampled_from(["/srv", "/srv/dist", "/opt/a b", "/home/u"]), max_size=3)
CONFINEMENTS = st.builds(
    lambda hosts, git, folders, unsandboxed: Confinement(
        network=wanted_hosts(hosts), git=git, folders=tuple(sorted(set(folders))), unsandboxed=unsandboxed
    ),
    *(HOSTS, st.booleans(), FOLDERS, st.booleans()),
)


@given(CONFINEMENTS, CONFINEMENTS)
def test_laws(one: Confinement, other: Confinement) -> None:
    written = suffix_of(one)
    assert written is not None
    assert parse_suffix(written) == one
    assert covers(one, one)
    assert covers(one, SESSION_SANDBOX)
    if covers(one, other) and other.opens and not one.unsandboxed:
        assert overlaps(one, other)  # what a rule allows, the same rule restricts


@pytest.mark.parametrize("folder", ["/a(b)", "/a+b", "/a,b", "/a\nb", "/a*"])
def test_a_folder_that_a_rule_cannot_write_is_offered_no_rule(folder: str) -> None:
    assert suffix_of(Confinement(folders=(folder,))) is None
