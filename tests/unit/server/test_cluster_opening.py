"""A node that cannot be a safe member of its cluster does not start, and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.live_sessions import scripted_models

from makai.auth.cluster_key import KEY_VARIABLE
from makai.core.errors import InvalidRequest
from makai.server.cluster_opening import own_sessions

KEY = "a cluster key for tests, which is long enough"
STORE = '[store]\nurl = "postgres://127.0.0.1:1/none"\n[cluster]\n'


async def refusal(folder: Path, cluster: str, key: str) -> str:
    async with scripted_models(folder, "say: Hi.") as models:
        home = folder / "makai-home"
        home.mkdir(exist_ok=True)
        home.joinpath("config.toml").write_text(STORE + cluster, encoding="utf-8")
        with pytest.raises(InvalidRequest) as refused:
            await own_sessions(home, models, environ={KEY_VARIABLE: key})
        return refused.value.message


async def test_a_node_that_listens_for_others_needs_a_key_of_32_characters(tmp_path: Path) -> None:
    listens = 'listen = "127.0.0.1:8719"'
    assert await refusal(tmp_path, listens, "") == f"There is no cluster key: {KEY_VARIABLE} is empty or not set."
    assert await refusal(tmp_path, listens, "x" * 31) == (
        f"The cluster key in {KEY_VARIABLE} has fewer than 32 characters."
    )


@pytest.mark.parametrize("listen", ["0.0.0.0:8719", "[::]:8719", "127.0.0.1:0"])
async def test_a_node_that_others_cannot_find_has_to_say_where_it_is(tmp_path: Path, listen: str) -> None:
    assert await refusal(tmp_path, f'listen = "{listen}"', KEY) == f"Other nodes cannot connect to {listen}."


async def test_an_address_that_is_none_is_refused_with_the_name_of_its_setting(tmp_path: Path) -> None:
    assert await refusal(tmp_path, 'listen = "8719"', KEY) == "`listen` in [cluster] is not an address: '8719'."
    assert await refusal(tmp_path, 'listen = "127.0.0.1:8719"\nadvertise = "node"', KEY) == (
        "`advertise` in [cluster] is not an address: 'node'."
    )
