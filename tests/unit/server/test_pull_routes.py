"""The download of the small local model, as the page starts, watches and cancels it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.serving import Site, serving

from makai.core.errors import MakaiError
from makai.providers.local import install
from makai.providers.local.weights import SMOLLM2, OnProgress, PullProgress, installed_path

KNOWN = {"name": SMOLLM2.display_name, "size": "93 MB", "stage": "", "done": 0, "total": 0}
NOTHING = KNOWN | {"message": "", "hint": "", "model_ref": ""}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MAKAI_HOME", str(tmp_path / "makai-home"))
    return tmp_path / "makai-home"


async def pulled(site: Site, status: str) -> dict[str, Any]:
    """The state once it has this status."""
    async with asyncio.timeout(30):
        while (body := (await site.ask("GET", "/api/models/pull"))[1])["status"] != status:
            pass
    return dict(body)


async def test_a_download_shows_its_progress_and_is_cancelled_and_continued(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def pull(model: object, *, home: Path, progress: OnProgress) -> Path:
        progress(PullProgress("downloading", 5, 10))
        begun.set()
        await may_end.wait()
        target = installed_path(home, SMOLLM2)
        target.parent.mkdir(parents=True)
        with target.open("wb") as file:
            file.truncate(SMOLLM2.size)
        return target

    monkeypatch.setattr(install, "pull", pull)
    monkeypatch.setattr("makai.providers.local.weights.has_llama", lambda: True)
    async with serving(tmp_path, "say: Hi.") as site:
        assert (await site.ask("GET", "/api/models/pull"))[1] == NOTHING | {"status": "none"}
        assert (await site.ask("POST", "/api/models/pull", {}))[0] == 202
        await begun.wait()
        running = {"status": "running", "stage": "downloading", "done": 5, "total": 10}
        assert (await site.ask("GET", "/api/models/pull"))[1] == NOTHING | running
        assert (await site.ask("DELETE", "/api/models/pull"))[1] == NOTHING | {"status": "cancelled"}
        may_end.set()
        await site.ask("POST", "/api/models/pull", {})
        ready = {"status": "done", "model_ref": "local/openai-completions@smollm2-135m"}
        assert await pulled(site, "done") == NOTHING | ready


async def test_a_download_that_fails_says_why_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pull(model: object, *, home: Path, progress: OnProgress) -> Path:
        raise MakaiError("The index cannot be reached.", hint="Check the network.")

    monkeypatch.setattr(install, "pull", pull)
    async with serving(tmp_path, "say: Hi.") as site:
        await site.ask("POST", "/api/models/pull", {})
        failed = {"status": "failed", "message": "The index cannot be reached.", "hint": "Check the network."}
        assert await pulled(site, "failed") == NOTHING | failed
