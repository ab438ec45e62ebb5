"""Asks vendors for their lists of models: the I/O shell of `catalog.discovery`. All vendors are asked at once, each
within its deadline; answers are kept for as long as clients may keep theirs, and concurrent callers share one request.
A vendor's failure is a value (`ProviderListing.error`), never raised."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from makai.auth.credentials import is_loopback
from makai.catalog.discovery import ProviderListing, listing_request, read_listing
from makai.catalog.listing import DYNAMIC_MAX_AGE_MS
from makai.catalog.models import ModelRow, ModelsRequest
from makai.catalog.resolver import ListingAccess, Resolver
from makai.catalog.vendors import Vendor
from makai.core.errors import MakaiError, ParseError, ProviderError
from makai.core.secret import Secret
from makai.providers.failure import Target
from makai.providers.http import HttpClient

log = logging.getLogger(__name__)

DEADLINE_S = 10.0
"""For a whole list, all pages of it."""
LOOPBACK_DEADLINE_S = 1.0
"""A server on this machine answers at once or does not run. A person who asks for a new list gives it longer."""
MAX_PAGES = 20
MAX_CACHED = 64

_Key: TypeAlias = tuple[str, str, Secret | None]
"""Provider, base URL, credential: another key may see other models."""


class _Cached(msgspec.Struct, frozen=True):
    rows: tuple[ModelRow, ...]
    fetched_at: float


class ModelDiscovery:
    """Lists of models, asked for when needed. It belongs to one event loop; `close` ends what is under way."""

    def __init__(
        self, client: HttpClient, resolver: Resolver, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._resolver = resolver
        self._monotonic = monotonic
        self._cache: dict[_Key, _Cached] = {}
        self._flights: dict[_Key, asyncio.Task[ProviderListing]] = {}

    async def close(self) -> None:
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    async def listings(self, request: ModelsRequest, *, refresh: bool = False) -> dict[str, ProviderListing]:
        """What each vendor said that has a list, can be asked now and is of interest to the request."""
        asked = {
            vendor.id: self._listing(vendor, access, refresh)
            for vendor in self._resolver.vendors.values()
            if request.provider_id in ("", vendor.id)
            and (not request.api or request.api in vendor.paths)
            and (access := self._resolver.listing_access(vendor)) is not None
        }
        return dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))

    async def _listing(self, vendor: Vendor, access: ListingAccess, refresh: bool) -> ProviderListing:
        key = (vendor.id, access.base_url, access.secret)
        cached = self._cache.get(key)
        if cached is not None and not refresh and self._is_fresh(cached):
            return ProviderListing(rows=cached.rows)
        if key not in self._flights:
            flight = asyncio.create_task(self._ask(vendor, access, key, refresh), name=f"models of {vendor.id}")
            self._flights[key] = flight
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        # Shielded: a cancelled caller must not end the request for those who share it.
        return await asyncio.shield(self._flights[key])

    async def _ask(self, vendor: Vendor, access: ListingAccess, key: _Key, refresh: bool) -> ProviderListing:
        is_local = is_loopback(urlsplit(access.base_url).hostname or "")
        deadline_s = LOOPBACK_DEADLINE_S if is_local and not refresh else DEADLINE_S
        try:
            async with asyncio.timeout(deadline_s):
                rows = self._resolver.learn(vendor, await self._pages(vendor, access, deadline_s))
        except TimeoutError:
            return ProviderListing(error=_failed(vendor, f"it did not end within {deadline_s:g} s"))
        except ParseError as error:
            return ProviderListing(error=_failed(vendor, error.message))
        except MakaiError as error:
            return ProviderListing(error=error)
        except Exception:
            # An unforeseen shape of list fails for that vendor only (MK-MODEL-015).
            log.exception("reading the list of models of %s failed", vendor.id)
            return ProviderListing(error=_failed(vendor, "internal error"))
        self._keep(key, rows)
        return ProviderListing(rows=rows)

    async def _pages(self, vendor: Vendor, access: ListingAccess, deadline_s: float) -> list[ModelRow]:
        rows: list[ModelRow] = []
        cursor = ""
        for _ in range(MAX_PAGES):
            request = listing_request(vendor, access.base_url, access.secret, cursor)
            target = Target(provider_id=vendor.id, secret=access.secret, vendor=vendor)
            body = await self._client.get(target, request.url, request.headers, deadline_s=deadline_s)
            page = read_listing(vendor, body)
            rows += page.rows
            cursor = page.next_cursor
            if not cursor:
                break
        return rows

    def _keep(self, key: _Key, rows: tuple[ModelRow, ...]) -> None:
        self._cache = {known: kept for known, kept in self._cache.items() if known != key and self._is_fresh(kept)}
        if len(self._cache) >= MAX_CACHED:
            self._cache.pop(next(iter(self._cache)))
        self._cache[key] = _Cached(rows, self._monotonic())

    def _is_fresh(self, cached: _Cached) -> bool:
        return (self._monotonic() - cached.fetched_at) * 1000 < DYNAMIC_MAX_AGE_MS


def _failed(vendor: Vendor, why: str) -> ProviderError:
    return ProviderError(f"{vendor.id} sent no usable list of models: {why}", provider_id=vendor.id)
