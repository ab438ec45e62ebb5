"""How long a run keeps asking a provider: what the run says, else the user's `config.toml`, else ten minutes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from support.live_sessions import Desk, desk, scripted_models

from makai.core import session_events as ev
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.stream_events import StreamEvent
from makai.providers.retries import PATIENCE_S
from makai.providers.runtime import ModelRuntime
from makai.sessions.owner import OwnedSessions


class AskedModels:
    """Models that remember how long each request may be repeated."""

    def __init__(self, models: ModelRuntime) -> None:
        self._models = models
        self.patience_s: list[float | None] = []

    def resolve(self, model: str | Model | None) -> Model:
        return self._models.resolve(model)

    def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        assert options is not None
        self.patience_s.append(options.retry_for_s)
        return self._models.stream(model, context, options)


@pytest.mark.parametrize(
    ("config", "patience_s"),
    [("", PATIENCE_S), ("[retries]\nmax_seconds = 30\n", 30), ("[retries]\nmax_seconds = 0\n", 0)],
)
async def test_a_run_asks_as_long_as_the_users_file_says(tmp_path: Path, config: str, patience_s: float) -> None:
    async with scripted_models(tmp_path, "say: Hello.") as models:
        asked = AskedModels(models)
        home = tmp_path / "makai-home"
        home.mkdir(exist_ok=True)
        sessions = await OwnedSessions.open(home, asked)
        try:
            client: Desk = await desk(sessions)
            (home / "config.toml").write_text(config)  # it counts from the next run on
            await client.run("Hi")
            await client.run("Hi", terms=ev.RunTerms(options=StreamOptions(retry_for_s=5)))
        finally:
            await sessions.close()

    assert asked.patience_s == [patience_s, 5]
