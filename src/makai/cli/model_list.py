"""Which models to show: the catalog asked with the filters of the command line.

In: filters and an environment. Out: what `models_request` would answer, and how each provider stands. The only I/O is
a look at the weights and, for `--available`, a try whether the user's own servers listen.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from makai.catalog.builtin import builtin
from makai.catalog.descriptors import (
    AuthStatus,
    ModelDescriptor,
    ModelLifecycle,
    ModelSource,
    ModelsRequest,
    ModelsResponse,
)
from makai.catalog.listing import list_models
from makai.catalog.model_ref import format_model_ref
from makai.catalog.resolver import Resolver
from makai.catalog.vendors import Vendor, builtin_vendors
from makai.cli.access import Access, access_of
from makai.cli.console import run_async
from makai.core.errors import InvalidRequest
from makai.core.home import home_directory

_HIDDEN = "scripted"
"""Answers from a file, for tests and demonstrations: not a model anyone looks for."""


class ListRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of `makai models list`; an empty one does not filter."""

    provider: str = ""
    api: str = ""
    include_deprecated: bool = False
    available: bool = False


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """The models, and the providers they are shown under."""

    response: ModelsResponse
    access: tuple[Access, ...]
    default_model: str


def list_now(wanted: ListRequest, environ: Mapping[str, str]) -> Listed:
    """The models that match under this environment."""
    chosen = _chosen_vendors(wanted)
    home = home_directory(environ)
    resolver = Resolver(environ)
    access = [access_of(vendor, environ, home) for vendor in chosen]
    if wanted.available:
        access = _only_usable(access)
    request = ModelsRequest(api=wanted.api, include_deprecated=wanted.include_deprecated)
    shown = {one.provider: one for one in access}
    candidates = [
        _marked(model, shown[model.provider_id]) for model in resolver.descriptors() if model.provider_id in shown
    ]
    response = list_models(request, candidates, fetched_at_ms=time.time_ns() // 1_000_000)
    default = resolver.default_model()
    return Listed(
        response=response,
        access=tuple(_worth_showing(access, response, wanted.api)),
        default_model=f"{default.provider}/{default.id}",
    )


def _chosen_vendors(wanted: ListRequest) -> list[Vendor]:
    if wanted.api and wanted.api not in builtin_vendors().apis:
        raise InvalidRequest(
            f"there is no API {wanted.api!r}.", hint=f"There are {', '.join(sorted(builtin_vendors().apis))}."
        )
    if not wanted.provider:
        return [vendor for vendor in builtin_vendors().values() if vendor.id != _HIDDEN]
    vendor = builtin_vendors().find(wanted.provider)
    if vendor is None:
        raise InvalidRequest(
            f"there is no provider {wanted.provider!r}.", hint=f"There are {', '.join(builtin_vendors())}."
        )
    return [vendor]


def _only_usable(access: list[Access]) -> list[Access]:
    """Those that are ready; of the user's own servers, those that listen."""
    from makai.cli.reach import reach_all

    ready = [one for one in access if one.ready]
    own = [one.base_url for one in ready if one.is_own_server]
    reached = run_async(reach_all(own)) if own else {}
    return [one for one in ready if not one.is_own_server or not reached[one.base_url].problem]


def _worth_showing(access: list[Access], response: ModelsResponse, api: str) -> list[Access]:
    """Providers with a model in the answer, and those without any list of their own that speak the API."""
    listed = {model.provider_id for model in response.models}
    unlisted = set(builtin_vendors()) - {row.provider for row in builtin().models}
    return [
        one
        for one in access
        if one.provider in listed
        or (one.provider in unlisted and (not api or api in builtin_vendors()[one.provider].paths))
    ]


def _marked(model: ModelDescriptor, access: Access) -> ModelDescriptor:
    """The local model says whether its weights are here, since no login tells."""
    if model.provider_id != "local":
        return model
    return msgspec.structs.replace(model, metadata={**model.metadata, "installed": str(access.ready).lower()})


def summary(listed: Listed) -> str:
    """The line below the table."""
    if not listed.access:
        return "No model matches. `makai doctor` says what can be used and what to do."
    ready = [one for one in listed.access if one.ready and not one.is_own_server]
    return (
        f"{_counted(len(listed.response.models), 'model')} of {_counted(len(listed.access), 'provider')}, "
        f"{len(ready)} ready. Without -m: {listed.default_model}"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def resolve_now(name: str, environ: Mapping[str, str]) -> tuple[ModelDescriptor, Access | None]:
    """The model a name stands for, in the words of the discovery plane."""
    # The runtime's own resolver: it also knows the models that only a running makai has.
    from makai.providers.runtime import ModelRuntime

    resolver = ModelRuntime(environ).resolver
    model = resolver.resolve(name)
    vendor = builtin_vendors().find(model.provider)
    known = [one for one in resolver.descriptors() if (one.provider_id, one.model_id) == (model.provider, model.id)]
    base = known[0] if known else None
    descriptor = ModelDescriptor(
        model_ref=format_model_ref(model.provider, model.api, model.id),
        model_id=model.id,
        display_name=model.name,
        provider_id=model.provider,
        api=model.api,
        auth_status=resolver.auth_status(model.provider) if vendor else AuthStatus.UNKNOWN,
        lifecycle=base.lifecycle if base else ModelLifecycle.STABLE,
        capabilities=model.capabilities,
        source=ModelSource.STATIC_FALLBACK,
        base_url=model.base_url,
        context_window=model.context_window,
        max_output_tokens=model.max_output_tokens,
        reasoning_default=model.reasoning_default,
        metadata=base.metadata if base else {},
    )
    access = access_of(vendor, environ, home_directory(environ)) if vendor and vendor.id != _HIDDEN else None
    return (_marked(descriptor, access) if access else descriptor), access
