"""From a request for a model to a binding, without I/O: the environment of the process is never read (DM-ENDP-009).

A binding that comes out can be used: it has its key, its address has no placeholder left, and what was put into the
address cannot send the key to another host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from makai.core.errors import EndpointError
from makai.harness.contract.endpoint import (
    Company,
    EndpointBinding,
    EndpointRequest,
    HostDesc,
    ModelEndpointManifest,
)
from makai.harness.endpoints.companies import KEY_GROUPS, endpoint_manifest

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
"""One label of a host name: nothing that could end the host, such as a dot, a slash or an @."""
_REGION_VARIABLES: Final = ("AWS_REGION", "CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION")
_URL_VARIABLES: Final = ("AZURE_OPENAI_ENDPOINT",)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class CompanyEndpoint:
    """The endpoints of one company of makai's table."""

    def __init__(self, company: Company) -> None:
        self._manifest = endpoint_manifest(company)

    def manifest(self) -> ModelEndpointManifest:
        return self._manifest

    def resolve(self, request: EndpointRequest) -> EndpointBinding:
        return resolve(self._manifest, request)


def resolve(manifest: ModelEndpointManifest, request: EndpointRequest) -> EndpointBinding:
    """The binding of a request. `EndpointError` when the manifest has no such host, the host no such login, or when a
    key or a part of the address is missing or malformed."""
    desc = _host(manifest, request)
    where = f"{manifest.company} on {desc.host}"
    if request.auth not in desc.auth_modes:
        hint = f"Use one of: {', '.join(desc.auth_modes)}."
        raise EndpointError(f"{where} does not offer the login {request.auth!r}.", kind="auth_not_offered", hint=hint)
    env = {name: value for name in desc.env_keys if (value := request.env_provided.get(name, "")).strip()}
    _check_keys(manifest.company, desc, env, where)
    region = request.region or next((env[name] for name in _REGION_VARIABLES if name in env), "")
    base_url = _base_url(desc, env, {"region": region, "resource": request.resource}, where)
    if region:
        env |= {name: region for name in _REGION_VARIABLES if name in desc.env_keys}
    return EndpointBinding(
        company=manifest.company,
        model=request.model,
        base_url=base_url,
        protocol=desc.protocol,
        host=desc.host,
        auth=request.auth,
        cost_model=desc.cost_model,
        brings_own_auth=desc.brings_own_auth,
        env=env,
    )


def _host(manifest: ModelEndpointManifest, request: EndpointRequest) -> HostDesc:
    """The row of the host: of the wanted protocol if the request names one, else the usual row."""
    for desc in manifest.hosts:
        if desc.host == request.host and request.protocol in ("", desc.protocol):
            return desc
    wanted = f"{request.host!r}" + (f" for {request.protocol}" if request.protocol else "")
    offered = ", ".join(dict.fromkeys(desc.host for desc in manifest.hosts))
    raise EndpointError(
        f"{manifest.company} has no host {wanted}.", kind="unknown_host", hint=f"It has these hosts: {offered}."
    )


def _check_keys(company: Company, desc: HostDesc, env: Mapping[str, str], where: str) -> None:
    if not desc.needs_api_key:
        return
    groups = KEY_GROUPS.get((company, desc.host), tuple((name,) for name in desc.env_keys))
    missing = [" or ".join(group) for group in groups if env.keys().isdisjoint(group)]
    if missing:
        names = ", ".join(missing)
        raise EndpointError(f"{where} needs a key: {names} is not set.", kind="missing_key", hint=f"Set {names}.")


def _base_url(desc: HostDesc, env: Mapping[str, str], values: Mapping[str, str], where: str) -> str:
    """The address of a host. A variable with an address takes the place of the template, or of its host alone."""
    template = desc.base_url_tmpl
    if given := next((env[name] for name in _URL_VARIABLES if name in env), ""):
        _check_url(given, where)
        has_path = urlsplit(given).path.strip("/")
        return given.rstrip("/") + ("" if has_path else urlsplit(template).path)
    if values.get("region") == "global":  # the one location of Vertex without a prefix
        template = template.replace("{region}-aiplatform", "aiplatform")
    for name in dict.fromkeys(_PLACEHOLDER.findall(template)):
        value = values.get(name, "")
        if not value:
            raise EndpointError(f"{where} needs a {name}.", kind="missing_value", hint=f"Give the {name}.")
        if not _LABEL.fullmatch(value):
            raise EndpointError(f"The {name} for {where} is not a name.", kind="invalid_value")
        template = template.replace(f"{{{name}}}", value)
    return template


def _check_url(url: str, where: str) -> None:
    """Refuse an address that is no https URL; http only on this machine. The message never has the value."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    if (
        not host
        or not is_safe
        or parts.username is not None
        or parts.query
        or parts.fragment
        or _PLACEHOLDER.search(url)
    ):
        message = f"The address for {where} must be an https URL without a user, a query and placeholders."
        raise EndpointError(message, kind="invalid_value")
