"""In which of several databases a session is."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from makai.sessions.log.shards import shard_of

IDS = [f"session-{number}" for number in range(8000)]
NAMES = [f"shard-{number}" for number in range(8)]


@pytest.mark.parametrize(
    ("session_id", "shard"),
    [
        ("", "a"),
        ("s", "eu-1"),
        ("one", "a"),
        ("three", "eu-1"),
        ("3f2c9a1b-0000-4000-8000-000000000000", "eu-1"),
        ("\xe4\ud800", "b"),
    ],
)
def test_no_release_moves_a_session_to_another_shard(session_id: str, shard: str) -> None:
    assert {shard_of(names, session_id) for names in permutations(("a", "b", "eu-1"))} == {shard}


def test_shards_get_about_the_same_number_of_sessions() -> None:
    shares = Counter(shard_of(NAMES, session_id) for session_id in IDS)
    assert shares.keys() == set(NAMES)
    assert all(900 < share < 1100 for share in shares.values())


def test_a_new_name_takes_sessions_from_all_others_and_moves_none_between_them() -> None:
    moved = [
        (former, now)
        for session_id in IDS
        if (former := shard_of(NAMES[:7], session_id)) != (now := shard_of(NAMES, session_id))
    ]
    assert {now for _, now in moved} == {NAMES[7]}
    assert {former for former, _ in moved} == set(NAMES[:7])
