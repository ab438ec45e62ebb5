"""Which connections are closed when there are too many, and when their time is over."""

from __future__ import annotations

import pytest

from makai.transports.connection_table import (
    FLUSH_DEADLINE_S,
    HEADER_DEADLINE_S,
    UNAUTHENTICATED_S,
    ConnectionTable,
    ListenerLimits,
    OpenConnection,
)


def opened(table: ConnectionTable, *peers: str) -> list[OpenConnection]:
    """A connection per peer, which all found room."""
    made = [OpenConnection(peer, float(number)) for number, peer in enumerate(peers)]
    assert [table.add(connection) for connection in made] == [None] * len(made)
    return made


@pytest.mark.proof("limit-connections")
def test_above_the_cap_the_oldest_connection_without_a_token_goes() -> None:
    table = ConnectionTable(ListenerLimits(unauthenticated=3, total=10))
    first, second, *_ = opened(table, "a", "a", "a")
    table.authenticate(first)
    opened(table, "a")

    assert table.add(OpenConnection("a", 9.0)) is second
    assert len(table) == 4


def test_connections_that_have_just_opened_are_bounded_by_the_total_only() -> None:
    table = ConnectionTable(ListenerLimits(unauthenticated=2, total=4, burst_s=1.0))
    young = [OpenConnection("a", 5.0 + number / 10) for number in range(5)]

    assert [table.add(connection) for connection in young] == [None, None, None, None, young[0]]
    assert table.add(OpenConnection("b", 6.1)) is young[1]


def test_the_peer_with_the_most_connections_loses_one() -> None:
    table = ConnectionTable(ListenerLimits(unauthenticated=4, total=10))
    honest, flooding, *_ = opened(table, "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2")

    assert table.add(OpenConnection("10.0.0.3", 9.0)) is flooding
    assert honest in set(table)


def test_addresses_of_one_ipv6_network_are_one_peer() -> None:
    table = ConnectionTable(ListenerLimits(unauthenticated=3, total=10))
    _, flooding, _ = opened(table, "2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:1:ffff::2%eth0")

    assert table.add(OpenConnection("2001:db8:0:2::1", 9.0)) is flooding


def test_when_all_are_authenticated_the_longest_idle_goes_and_none_that_serves_a_request() -> None:
    table = ConnectionTable(ListenerLimits(unauthenticated=3, total=3))
    busy, idle, idle_longer = (opened(table, "a")[0] for _ in range(3))
    for connection in (busy, idle, idle_longer):
        table.authenticate(connection)
    busy.requests, idle.idle_since, idle_longer.idle_since = 1, 8.0, 7.0

    assert table.add(OpenConnection("a", 9.0)) is idle_longer


def test_a_new_connection_is_refused_when_all_others_are_busy() -> None:
    table = ConnectionTable(ListenerLimits(unauthenticated=2, total=2))
    for connection in opened(table, "a", "a"):
        table.authenticate(connection)
        connection.requests = 1
    new = OpenConnection("b", 9.0)

    assert table.add(new) is new
    assert len(table) == 2


def test_deadlines_of_connections() -> None:
    table = ConnectionTable(ListenerLimits())
    silent, reading, owner, closing = opened(table, *"aaaa")
    for connection in (silent, reading, owner, closing):
        connection.opened_at = 0.0
    reading.was_heard = True
    table.authenticate(owner)
    table.authenticate(closing)
    closing.closing_since = 5.0

    assert table.expired(HEADER_DEADLINE_S) == []
    assert table.expired(HEADER_DEADLINE_S + 1) == [silent]
    assert table.expired(5.0 + FLUSH_DEADLINE_S + 1) == [silent, closing]
    assert table.expired(UNAUTHENTICATED_S + 1) == [silent, reading, closing]


def test_limits_leave_descriptors_for_the_rest_of_the_process() -> None:
    limits = ListenerLimits()

    assert limits.within(1_024) == ListenerLimits(unauthenticated=256, total=768)
    assert limits.within(256) == ListenerLimits(unauthenticated=64, total=192)
    assert limits.within(8_192) == limits
