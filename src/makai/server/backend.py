"""What the server needs of models; `providers.runtime.ModelRuntime` keeps this contract. Apart from it, so that the
HTTP library is imported with the first request and not at start-up."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from makai.auth.runtime import AuthRuntime
    from makai.catalog.models import ModelsRequest, ModelsResponse
    from makai.core.content import SessionPart
    from makai.core.model import Model
    from makai.core.observation import Observer
    from makai.core.request import Context, StreamOptions
    from makai.core.stream_events import StreamEvent
    from makai.providers.runtime import ModelRuntime


class Backend(Protocol):
    def resolve(self, model: str | Model | None) -> Model:
        """Raises for a name that is no model's."""

    def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Ask a model; raises before the first event for what can be checked locally."""

    async def models(self, request: ModelsRequest) -> ModelsResponse: ...
    def auth(self) -> AuthRuntime: ...
    async def close(self) -> None: ...


class LazyBackend:
    """A `ModelRuntime` that is imported and made when it is first asked something."""

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer
        self._runtime: ModelRuntime | None = None

    def _get(self) -> ModelRuntime:
        if self._runtime is None:
            from makai.core.observation import NO_OBSERVER
            from makai.providers.runtime import ModelRuntime

            self._runtime = ModelRuntime(observer=self._observer or NO_OBSERVER)
        return self._runtime

    def for_caller(self, environ: Mapping[str, str]) -> Backend:
        return self._get().for_caller(environ)

    def resolve(self, model: str | Model | None) -> Model:
        return self._get().resolve(model)

    def check_input(self, model: str | Model | None, content: str | tuple[SessionPart, ...]) -> None:
        self._get().check_input(model, content)

    def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        return self._get().stream(model, context, options)

    async def models(self, request: ModelsRequest) -> ModelsResponse:
        return await self._get().models(request)

    def auth(self) -> AuthRuntime:
        return self._get().auth()

    async def close(self) -> None:
        if self._runtime is not None:
            await self._runtime.close()
