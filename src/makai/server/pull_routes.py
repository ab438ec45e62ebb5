"""Downloads the small local model for the page: `/api/models/pull`. There is one download at a time; it is started,
polled and cancelled, and continues where an earlier one stopped."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from aiohttp import web

from makai.core.errors import MakaiError
from makai.core.home import home_directory
from makai.server.http_json import answer, answering, read_body

if TYPE_CHECKING:
    from makai.providers.local.weights import PullProgress

MAX_BODY: Final = 1024


class EmptyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request without anything to say has as its body."""


class PullState(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["none", "running", "done", "failed", "cancelled"]
    """`done`: the weights are installed."""
    name: str
    """What the user knows the model by."""
    size: str
    """Of the download, for people."""
    stage: str = ""
    done: int = 0
    total: int = 0
    message: str = ""
    """Why it failed, or what is missing to use the model."""
    hint: str = ""
    model_ref: str = ""
    """Of the model, when it can be used."""


class PullRoutes:
    def __init__(self) -> None:
        self._pulling: asyncio.Task[None] | None = None
        self._ended: PullState | None = None
        """How the last download ended."""
        self._progress: PullProgress | None = None

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/api/models/pull", answering(self._show))
        app.router.add_post("/api/models/pull", answering(self._start))
        app.router.add_delete("/api/models/pull", answering(self._cancel))
        app.on_shutdown.append(self._close)

    async def _show(self, request: web.Request) -> web.Response:
        return answer(self._state())

    async def _start(self, request: web.Request) -> web.Response:
        """Start a download, unless one is under way or the weights are there."""
        await read_body(request, EmptyBody, MAX_BODY)
        if self._state().status not in ("running", "done"):
            self._ended, self._progress = None, None
            self._pulling = asyncio.create_task(self._pull(), name="makai-pull")
        return answer(self._state(), 202)

    async def _cancel(self, request: web.Request) -> web.Response:
        """Stop the download; what has arrived is kept for the next one."""
        await self._stop()
        return web.Response(status=204)

    async def _close(self, app: web.Application) -> None:
        await self._stop()

    async def _stop(self) -> None:
        if self._pulling is not None:
            self._pulling.cancel()
            with suppress(asyncio.CancelledError):
                await self._pulling

    async def _pull(self) -> None:
        from makai.providers.local.install import pull  # loads an HTTP client
        from makai.providers.local.weights import SMOLLM2

        def note(progress: PullProgress) -> None:
            self._progress = progress

        try:
            await pull(SMOLLM2, home=home_directory(os.environ), progress=note)
        except MakaiError as error:
            self._ended = _state("failed", message=error.message, hint=error.hint or "")
        except asyncio.CancelledError:
            self._ended = _state("cancelled")
            raise

    def _state(self) -> PullState:
        from makai.providers.local.weights import SMOLLM2, installed, local_trouble

        if self._pulling is not None and not self._pulling.done():
            step = self._progress
            return _state("running") if step is None else _state("running", step.stage, step.done, step.total)
        home = home_directory(os.environ)
        if installed(home, SMOLLM2) is None:
            return self._ended or _state("none")
        if trouble := local_trouble(home, SMOLLM2):
            return _state("failed", message=f"The model is downloaded, but {trouble}")
        return msgspec.structs.replace(_state("done"), model_ref=f"local/openai-completions@{SMOLLM2.id}")


def _state(
    status: Literal["none", "running", "done", "failed", "cancelled"],
    stage: str = "",
    done: int = 0,
    total: int = 0,
    *,
    message: str = "",
    hint: str = "",
) -> PullState:
    from makai.providers.local.weights import SMOLLM2

    return PullState(
        status=status,
        name=SMOLLM2.display_name,
        size=SMOLLM2.download_text,
        stage=stage,
        done=done,
        total=total,
        message=message,
        hint=hint,
    )
