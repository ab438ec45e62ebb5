"""`client.models`: the models that the server lists, cached. The server filters, also for `resolve`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from makai.catalog.models import ModelDescriptor, ModelsRequest, ModelsResponse
from makai.client.connection import MakaiConnection
from makai.client.requests import given_of, shape_of
from makai.client.types import ResolveModelRequest, ResolveModelResponse
from makai.core.errors import MakaiStreamError
from makai.protocols.makai.framing import unix_milliseconds

DEFAULT_MAX_AGE_MS: Final = 300_000
"""For a server that does not say."""
_MAX_CACHED: Final = 64
_Shape = TypeVar("_Shape", bound=msgspec.Struct)


class _Listing(msgspec.Struct, frozen=True, kw_only=True):
    """`models_response` as lenient as the document asks clients to be."""

    models: tuple[ModelDescriptor, ...]
    fetched_at_ms: int
    cache_max_age_ms: int = DEFAULT_MAX_AGE_MS


_listing = msgspec.json.Decoder(_Listing).decode


class ModelsApi:
    def __init__(self, connection: MakaiConnection, now_ms: Callable[[], int] = unix_milliseconds) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._cache: OrderedDict[ModelsRequest, ModelsResponse] = OrderedDict()

    async def list(
        self,
        request: ModelsRequest | Mapping[str, Any] | None = None,
        *,
        provider_id: str | None = None,
        api: str | None = None,
        model_id: str | None = None,
        include_deprecated: bool | None = None,
        include_login_required: bool | None = None,
    ) -> ModelsResponse:
        """Every model that matches the filters. The answer may come from the cache, so `auth_status` may lag."""
        fields = {
            "provider_id": provider_id,
            "api": api,
            "model_id": model_id,
            "include_deprecated": include_deprecated,
            "include_login_required": include_login_required,
        }
        return await self._list(_filters(ModelsRequest, request, fields))

    async def resolve(
        self,
        request: ResolveModelRequest | Mapping[str, Any] | None = None,
        *,
        provider_id: str | None = None,
        model_id: str | None = None,
        api: str | None = None,
    ) -> ResolveModelResponse:
        """The one model of this name. Raises `invalid_request` when there is none, or more than one."""
        fields = {"provider_id": provider_id, "model_id": model_id, "api": api}
        wanted = _filters(ResolveModelRequest, request, fields)
        listing = await self._list(
            ModelsRequest(provider_id=wanted.provider_id, model_id=wanted.model_id, api=wanted.api or "")
        )
        if not listing.models:
            raise _invalid(f"model not found: {wanted.model_id} of {wanted.provider_id}")
        if len(listing.models) > 1:
            raise _invalid(f"{wanted.model_id} of {wanted.provider_id} is ambiguous: name its api")
        return ResolveModelResponse(model=listing.models[0])

    def known(self, model_ref: str) -> ModelDescriptor | None:
        """What this client was told about a model it is about to ask, if it listed it."""
        for listing in reversed(self._cache.values()):
            for model in listing.models:
                if model.model_ref == model_ref:
                    return model
        return None

    def forget(self) -> None:
        self._cache.clear()

    async def _list(self, filters: ModelsRequest) -> ModelsResponse:
        cached = self._cache.get(filters)
        # MK-SDK-019: stale only when now_ms is strictly greater
        if cached is not None and self._now_ms() <= cached.fetched_at_ms + cached.cache_max_age_ms:
            return cached
        listing = await self._connection.ask("models_request", filters, "models_response", _listing)
        response = ModelsResponse(**msgspec.structs.asdict(listing))
        self._cache[filters] = response
        self._cache.move_to_end(filters)
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        return response


def _filters(kind: type[_Shape], request: _Shape | Mapping[str, Any] | None, fields: dict[str, Any]) -> _Shape:
    return shape_of(kind, given_of(request, fields), kind.__name__)


def _invalid(message: str) -> MakaiStreamError:
    return MakaiStreamError(message, kind="unknown", code="invalid_request")
