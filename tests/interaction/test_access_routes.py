"""Saved permissions, trusted folders and tokens over REST."""

from __future__ import annotations

from pathlib import Path

from support.minicodex_client import BOTH
from support.serving import serving
from support.tokens import bearer, make_token

from makai.core.secret import Secret
from makai.sessions.requests import ListGrants

DAY_S = 86_400
ASKS = 'tool: shell {"command": "touch made"}\n---\nsay: Done.'


async def test_a_saved_permission_is_listed_and_revoked(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, ASKS) as site:
        client = await site.client(await site.session(cwd=project), *BOTH)
        assert await client.ask("send", text="Go") == "accepted"
        asked = (await client.until("approval_pending"))[-1]
        assert await client.ask("approve", call_id=asked["call_id"], scope="always") == "accepted"
        await client.until_over()
        [grant] = (await site.ask("GET", "/api/grants"))[1]["grants"]
        assert (grant["folder"], grant["allow"]) == (str(project), True)

        named = {"folder": grant["folder"], "rule": grant["rule"]}
        assert await site.ask("POST", "/api/grants/revoke", named) == (200, {"revoked": True})
        assert await site.ask("POST", "/api/grants/revoke", named) == (200, {"revoked": False})
        assert await site.sessions.dispatch(ListGrants()) == []
        await client.close()


async def test_a_folder_is_trusted_only_as_it_was_shown(tmp_path: Path, project: Path) -> None:
    file = project / ".makai/config.toml"
    file.parent.mkdir()
    file.write_text('mode = "plan"\n', encoding="utf-8")
    async with serving(tmp_path, "say: Hi.") as site:
        _, seen = await site.ask("GET", f"/api/trust/folder?path={project}")
        assert (seen["trusted"], seen["wanted"]) == (False, [".makai/config.toml sets:", '  mode = "plan"'])
        trusting = {"folder": str(project), "trusted": True, "shown": seen["digests"]}

        file.write_text('mode = "ask"\n', encoding="utf-8")
        assert await site.ask("POST", "/api/trust", trusting) == (200, {"done": False})

        _, seen = await site.ask("GET", f"/api/trust/folder?path={project}")
        assert await site.ask("POST", "/api/trust", trusting | {"shown": seen["digests"]}) == (200, {"done": True})
        _, said = await site.ask("GET", "/api/trust")
        assert said["folders"] == [{"folder": str(project), "trusted": True}]

        assert (await site.ask("POST", "/api/trust", {"folder": str(project), "trusted": False}))[1] == {"done": True}
        status, said = await site.ask("GET", "/api/trust/folder?path=project")
        assert (status, said["error"]["message"]) == (400, "project is not an absolute path.")


async def test_a_token_is_made_shown_once_used_and_revoked(tmp_path: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        wanted = {"name": "phone", "scope": "approve", "lasts_s": DAY_S}
        status, made = await site.ask("POST", "/api/tokens", wanted)
        assert (status, made["name"], made["scope"], "digest" in made) == (201, "phone", "approve", False)
        mine = bearer(Secret(made["secret"]))
        assert (await site.ask("GET", "/api/info", headers=mine))[1]["token"] == "phone"

        _, said = await site.ask("GET", "/api/tokens")
        assert [(one["name"], "secret" in one, "digest" in one) for one in said["tokens"]] == [("phone", False, False)]
        assert said["current"] == ""
        assert (await site.ask("DELETE", f"/api/tokens/{made['token_id']}"))[0] == 204
        assert (await site.ask("DELETE", "/api/tokens/none"))[0] == 400
        [left] = (await site.ask("GET", "/api/tokens"))[1]["tokens"]
        assert left["revoked_ms"] is not None


async def test_a_token_that_another_token_makes_does_not_outlive_it(tmp_path: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        token_id, token = await make_token(site.sessions, "admin", lasts_s=60)
        wanted = {"name": "longer", "scope": "admin", "lasts_s": 300 * DAY_S}
        _, made = await site.ask("POST", "/api/tokens", wanted, headers=bearer(token))
        _, said = await site.ask("GET", "/api/tokens", headers=bearer(token))

        ends = {one["token_id"]: one["expires_ms"] for one in said["tokens"]}
        assert (said["current"], ends[made["token_id"]]) == (token_id, ends[token_id])
