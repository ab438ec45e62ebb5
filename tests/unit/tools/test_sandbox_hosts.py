"""Patterns of hosts: one form for every way to write a name, and no address in any notation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.errors import InvalidRequest
from makai.tools.sandbox.hosts import DEFAULT_PORTS, MAX_HOSTS, canonical_name, normalised_hosts, parse_host
from makai.tools.sandbox.policy import SandboxPolicy, session_policy


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("Example.COM.", "example.com"),
        (" example.com ", "example.com"),
        ("*.Example.com", "*.example.com"),
        ("example.com:08443", "example.com:8443"),
        ("exämple.de", "xn--exmple-cua.de"),
        ("straße.de", "xn--strae-oqa.de"),  # and not strasse.de, which is another site
        ("example。com", "example.com"),
        ("_srv.example.com", "_srv.example.com"),
    ],
)
def test_every_way_to_write_a_host_has_one_form(written: str, form: str) -> None:
    assert normalised_hosts([written]) == (form,)


@pytest.mark.proof("L7")
@pytest.mark.parametrize(
    "written",
    [
        *("", "*", ".", "*.", "*.com", "*.*.com", "a.*.com", "**.example.com", "*example.com", "a..b", ".example.com"),
        *("127.0.0.1", "0x7f.1", "2130706433", "0177.0.0.1", "1.2.3.4.", "１２７.0.0.1", "[::1]", "[::1]:80", "::1"),
        *("example.com:", "example.com:0", "example.com:65536", "example.com:٣", "example.com:80:80", "a:-1", "a:+1"),
        *("http://example.com", "user@example.com", "example.com/x", "a b.com", "a\0.com", "a\n.com", "-a.com"),
        *(
            "a-.com",
            f"{'a' * 64}.com",
            f"{'a.' * 127}com",
            "example.com\u200b.evil\0",
            "exa%6dple.com",
            "ex\\ample.com",
        ),
    ],
)
def test_what_names_no_host_is_refused(written: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_host(written)


@pytest.mark.proof("L7")
@pytest.mark.parametrize(
    ("pattern", "name", "port", "covers"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "example.com", 22, False),
        ("example.com", "example.com", 8443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("example.com", "a.example.com", 443, False),
        ("example.com", "badexample.com", 443, False),
        ("*.example.com", "a.example.com", 443, True),
        ("*.example.com", "b.a.example.com", 80, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "badexample.com", 443, False),
        ("*.example.com", "example.com.evil.org", 443, False),
    ],
)
def test_a_pattern_covers_its_name_or_all_below_it(pattern: str, name: str, port: int, covers: bool) -> None:
    assert parse_host(pattern).covers(name, port) is covers


@given(st.text(max_size=60))
def test_a_normalised_name_is_its_own_form_and_plain(text: str) -> None:
    name = canonical_name(text)
    assert name is None or (
        canonical_name(name) == name and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    )


@given(st.ip_addresses(), st.sampled_from(["{}", "[{}]", "{}.", "*.{}", "{}:80"]))
def test_no_address_is_a_host(address: object, written: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_host(written.format(address))


def test_a_policy_holds_each_host_once_and_by_default_none(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    def policy(*hosts: str) -> SandboxPolicy:
        home = tmp_path / "home"
        return session_policy("workspace-write", [tmp_path / "work"], makai_home=home, user_home=home, hosts=hosts)

    assert policy().hosts == ()
    assert policy("b.example", "B.Example.", "*.a.example").hosts == ("*.a.example", "b.example")
    with pytest.raises(InvalidRequest):
        policy(*(f"h{number}.org" for number in range(MAX_HOSTS + 1)))
    assert sorted(DEFAULT_PORTS) == [80, 443]
