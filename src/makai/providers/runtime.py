"""Everything needed to ask a model by its name: joins catalog, credentials and providers. It owns the connection pool
and the local server, and closes them."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from makai.auth.credentials import Credential
from makai.catalog.discovery import ProviderListing
from makai.catalog.listing import list_models
from makai.catalog.models import ModelDescriptor, ModelsRequest, ModelsResponse
from makai.catalog.resolver import Resolver
from makai.core.config import Config
from makai.core.content import SessionPart
from makai.core.errors import MakaiError, ModelNotFound, ProviderError
from makai.core.home import home_directory
from makai.core.lent_variables import LayeredVariables
from makai.core.messages import AssistantMessage
from makai.core.model import Model
from makai.core.observation import NO_OBSERVER, Observer
from makai.core.request import Context, StreamOptions
from makai.core.stream_events import Done, Failed, Start, StreamEvent, failure_of, in_batches, one_by_one
from makai.providers.base import Provider, ProviderRequest
from makai.providers.discovery import ModelDiscovery
from makai.providers.http import HttpClient, HttpProvider
from makai.providers.local.weights import local_trouble
from makai.providers.logins import Logins
from makai.providers.media import check_input, fitted
from makai.providers.observed import observed
from makai.providers.registry import ProviderRegistry, builtin_api
from makai.providers.scripted import SCENARIO_NAMES, SCENARIO_VARIABLE, ScriptedProvider, scenario_of, scripted_models

if TYPE_CHECKING:
    from makai.auth.runtime import AuthRuntime


class ModelRuntime:
    """Models by name. Use it as `async with`; it opens nothing before the first request."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        home: Path | None = None,
        on_status: Callable[[str], None] | None = None,
        config: Config | None = None,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        """Without a `config`, that of the home directory is read."""
        self._observer = observer
        self.environ = os.environ if environ is None else environ
        self.home = home or home_directory(self.environ)
        self._on_status = on_status
        self._client = HttpClient()
        self.registry = ProviderRegistry(self._client)
        scripted = ScriptedProvider(lambda model_id: scenario_of(model_id, self.environ), keep_requests=0)
        self.registry.register("scripted", scripted)
        self.logins = Logins(self.environ, self.home, config)
        self.resolver = self._resolver()
        self._discovery = ModelDiscovery(self._client, self.resolver)
        self._local: Provider | None = None
        self._owner = self
        """Has what must be closed: connections, refreshes of logins and the local server."""

    def for_caller(self, environ: Mapping[str, str]) -> ModelRuntime:
        """The same models with these variables over those of this runtime, which stays the owner of connections."""
        view = copy.copy(self)
        view.environ = LayeredVariables(environ, self.environ)
        view.logins = Logins(view.environ, self.home, store=self.logins.store)
        view.resolver = view._resolver()
        return view

    def _resolver(self) -> Resolver:
        return self.logins.resolver(scripted_models(self.environ))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections and end the local server."""
        from makai.providers.local.server import LocalProvider

        if isinstance(self._local, LocalProvider):
            await self._local.close()
        await self._discovery.close()
        await self.logins.close()
        await self._client.close()

    def auth(self) -> AuthRuntime:
        return self.logins.auth()

    def resolve(self, model: str | Model | None) -> Model:
        """The execution model of a name, of a caller's object, or the default one."""
        if isinstance(model, Model):
            return self.resolver.resolve_object(model)
        try:
            return self.resolver.resolve(model)
        except ModelNotFound as error:
            if model in SCENARIO_NAMES and not self.environ.get(SCENARIO_VARIABLE):
                # The caller may have set it: only this process, which owns the sessions, can read its own.
                why = f"{SCENARIO_VARIABLE} is not set in process {os.getpid()}, which answers"
                error.hint = f"{why}. Start that process with it, or use another MAKAI_HOME."
            raise

    def check_input(self, model: str | Model | None, content: str | tuple[SessionPart, ...]) -> None:
        """Raise `InvalidRequest` for a message with a part that the model is known not to take."""
        check_input(self.resolver, self.resolve(model), content)

    def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Ask a model. Raises before the first event for what can be checked here (unknown model, missing key)."""
        return one_by_one(self.batches(model, context, options))

    async def batches(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[Sequence[StreamEvent], None]:
        """The events of `stream`, those of one read together."""
        target = self.resolve(model)
        context = fitted(context, self.resolver, target)
        options = options or StreamOptions()
        credential = self.resolver.credential_for(target, options.account)
        if credential is not None and credential.expires_at_ms is not None:
            credential = await self._owner.logins.refreshed(credential)
        renewable = credential is not None and credential.expires_at_ms is not None
        async with aclosing(self._ask(target, context, options, credential)) as batches:
            async for batch in batches:
                match batch[-1]:
                    case Failed(error_code="auth_required") as refusal if renewable and not refusal.message.content:
                        break
                yield batch
            else:
                return
        # The provider refused a token that looked valid: refresh it and ask once more (MK-AUTH-019).
        assert credential is not None
        try:
            credential = await self._owner.logins.refreshed(credential, rejected=credential.secret)
        except MakaiError as error:
            failure = msgspec.structs.replace(
                refusal, error_code=error.code, error_message=error.message, hint=error.hint, retry_after_ms=None
            )
            yield [failure]
            return
        async with aclosing(self._ask(target, context, options, credential)) as batches:
            async for batch in batches:
                if type(batch[0]) is not Start:
                    yield batch

    def _ask(
        self, model: Model, context: Context, options: StreamOptions, credential: Credential | None
    ) -> AsyncGenerator[Sequence[StreamEvent], None]:
        if credential is not None:
            model = self.resolver.with_account(model, credential)
        secret = credential.secret if credential else None
        vendor = self.resolver.vendors.find(model.provider)
        proxies = None if self._owner is self else self.environ
        request = ProviderRequest(
            model=model, context=context, options=options, secret=secret, vendor=vendor, proxies=proxies
        )
        provider = self._provider_for(model)
        batches: AsyncGenerator[Sequence[StreamEvent], None]
        if isinstance(provider, HttpProvider):
            batches = provider.batches(request)
        else:
            batches = in_batches(provider.stream(request))
        return batches if self._observer is NO_OBSERVER else observed(batches, self._observer, model.provider)

    async def complete(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AssistantMessage:
        """Ask a model and wait for the whole answer; failures are raised."""
        async with aclosing(self.stream(model, context, options)) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event.message
                if isinstance(event, Failed):
                    raise failure_of(event)
        raise MakaiError("the provider ended without an answer")

    async def models(self, request: ModelsRequest, *, refresh: bool = False) -> ModelsResponse:
        """What a `models_request` gets: vendors' own lists where they can be had, else the built-in rows. Lists are
        kept for five minutes; `refresh` asks again. One provider's failure never fails the others; it is raised only
        for a request that names the provider when there is nothing else to tell about it."""
        listings = await self._discovery.listings(request, refresh=refresh)
        candidates = self.resolver.descriptors(listings, self.logins.statuses())
        candidates = [self._with_trouble(model, listings.get(model.provider_id)) for model in candidates]
        named = listings.get(request.provider_id)
        known = {model.provider_id for model in candidates}
        if named is not None and named.error is not None and request.provider_id not in known:
            raise _listing_failure(request.provider_id, named.error)
        return list_models(
            request,
            candidates,
            fetched_at_ms=time.time_ns() // 1_000_000,
            fetched=any(listing.error is None for listing in listings.values()),
        )

    def _with_trouble(self, model: ModelDescriptor, listing: ProviderListing | None) -> ModelDescriptor:
        """The model with `unavailable` in its metadata, when a model on this machine could not answer now: why."""
        trouble = ""
        vendor = self.resolver.vendors.get(model.provider_id)
        if model.provider_id == "local":
            trouble = local_trouble(self.home)
        elif vendor is not None and not vendor.needs_key and listing is not None and listing.error is not None:
            trouble = f"{vendor.name} does not answer; is it running?"
        return msgspec.structs.replace(model, metadata=model.metadata | {"unavailable": trouble}) if trouble else model

    def _provider_for(self, model: Model) -> Provider:
        if model.provider == "local" and self._owner._local is None:
            from makai.providers.local.server import LocalProvider

            chat = HttpProvider(builtin_api("openai-completions"), self._client)
            self._owner._local = LocalProvider(chat, self.home, self._on_status)
            self.registry.register_for("local", self._owner._local)
        return self.registry.provider_for(model)


def _listing_failure(provider_id: str, error: MakaiError) -> ProviderError:
    """An upstream listing failure without a fallback is a `provider_error`, whatever its cause (MK-MODEL-013)."""
    message = f"{provider_id} does not tell its models and none are built in: {error.message}"
    return ProviderError(message, provider_id=provider_id, hint=error.hint)
