"""The one place where a name becomes a model that can be run (MK-MODEL-025). It does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import msgspec

from makai.auth.credentials import Credential, KeySource, origin_of
from makai.auth.store import Keychain
from makai.catalog.discovery import ProviderListing, is_offered, with_known_facts
from makai.catalog.listing import descriptor_of
from makai.catalog.model_ref import ModelRef, parse_model_ref
from makai.catalog.model_settings import model_for
from makai.catalog.models import AuthStatus, ModelDescriptor, ModelRow, ModelSource, builtin
from makai.catalog.vendor_table import builtin_vendors
from makai.catalog.vendors import ASSUMED_CAPABILITIES, Vendor, VendorTable, base_url_of, key_source_of, options_of
from makai.core.errors import AuthRequired, InvalidRequest, MakaiError, ModelNotFound, ModelRetired
from makai.core.model import ChatQuirks, Model, ModelCapability
from makai.core.secret import Secret
from makai.core.settings import Settings

DEFAULT_ORDER = (
    *("anthropic", "openai", "google", "openrouter", "xai", "mistral", "deepseek", "groq"),
    *("cerebras", "together", "fireworks"),
)
"""Whose credential decides the default model; after them come the user's own providers and the model on this
machine."""

_MAX_NAME = 100
_NO_SETTINGS = Settings()
_UNLISTED = (ModelCapability.AUDIO_INPUT,)
"""What vendors' own lists seldom tell."""
_UNSTATED_CAPABILITIES = (ModelCapability.CHAT, ModelCapability.STREAMING)


class ListingAccess(msgspec.Struct, frozen=True, kw_only=True):
    base_url: str
    secret: Secret | None


class Resolver:
    """Names to models under one environment.

    `rows` are models only the runtime knows (pulled weights, scripted scenarios) and win over the built-in ones;
    `base_urls` are its addresses by provider id, such as that of the local server. `settings` name the default model
    and the user's aliases; `own_providers` are the ids of the providers that the user configured. What vendors list is
    added by `learn`; forgetting it, as a restart does, changes what is known about a ref but never whether it is
    accepted.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        keychain: Keychain | None = None,
        vendors: VendorTable | None = None,
        rows: Iterable[ModelRow] = (),
        base_urls: Mapping[str, str] | None = None,
        settings: Settings = _NO_SETTINGS,
        own_providers: Iterable[str] = (),
    ) -> None:
        self._environ = environ
        self.settings = settings
        self._own_providers = tuple(own_providers)
        self._keychain = keychain or Keychain(environ)
        self.vendors = vendors or builtin_vendors()
        self._extra = tuple(rows)
        self._runtime_urls = dict(base_urls or {})
        self._index: dict[tuple[str, str], ModelRow] | None = None
        self._learned: dict[str, dict[str, ModelRow]] = {}

    def learn(self, vendor: Vendor, told: Iterable[ModelRow]) -> tuple[ModelRow, ...]:
        """Take a vendor's own list of models into account; returns the rows to offer. They take the place of what the
        vendor listed before."""
        pairs = [(row, self._rows().get((vendor.id, row.id))) for row in told]
        offered = [with_known_facts(row, known) for row, known in pairs if is_offered(vendor, row, known)]
        self._learned[vendor.id] = {row.id: row for row in offered}
        return tuple(self._learned[vendor.id].values())

    def listing_access(self, vendor: Vendor) -> ListingAccess | None:
        """Where and with which credential the vendor's own list can be asked for now; None when it cannot."""
        if vendor.listing == "none":
            return None
        try:
            base_url = base_url_of(vendor, vendor.api, self._environ, self._runtime_urls)
            if not base_url:
                return None
            credential = self._keychain.credential_for(self._key_source(vendor), base_url)
        except MakaiError:
            return None  # what is wrong with it shows in `auth_status`
        return ListingAccess(base_url=base_url, secret=credential.secret if credential else None)

    def resolve(self, model: str | None) -> Model:
        """The model of a canonical ref, of `provider/model_id`, of a model id only one provider has, of an alias, or
        of a provider's id, which stands for its default model. None is the default model."""
        return (
            self.default_model() if model is None else self._model(self._canonical(self._reference(self._named(model))))
        )

    def resolve_object(self, model: Model) -> Model:
        """A caller's own model with what it left open filled in. What it states is kept."""
        if model.base_url:
            origin_of(model.base_url)
        vendor = self.vendors.find(model.provider)
        if vendor is None or model.api not in vendor.paths:
            if not model.base_url:
                raise self._unknown_provider(model.provider) if vendor is None else _not_spoken(vendor, model.api)
            return model
        if not model.base_url:
            known = self._model(self._canonical(ModelRef(vendor.id, model.api, model.id)))
        else:
            known = self._build(vendor, model.api, model.id, self._row(vendor, model.id))
        return msgspec.structs.replace(
            model,
            id=known.id,
            provider=vendor.id,
            base_url=model.base_url or known.base_url,
            name=model.name or known.name,
            capabilities=known.capabilities if model.capabilities == _UNSTATED_CAPABILITIES else model.capabilities,
            context_window=model.context_window or known.context_window,
            max_output_tokens=model.max_output_tokens or known.max_output_tokens,
            reasoning_default=model.reasoning_default or known.reasoning_default,
            price=model.price or known.price,
            quirks=known.quirks if model.quirks == ChatQuirks() else model.quirks,
            headers=known.headers | model.headers,
            options=known.options | model.options,
        )

    def default_model(self) -> Model:
        """The model of the settings, else the default one of the first provider in `DEFAULT_ORDER` that has a
        credential, else of the first of the user's own providers that can be used, else the local one."""
        if self.settings.model is not None:
            return model_for(self, self.settings)
        for provider_id in (*DEFAULT_ORDER, *self._own_providers):
            vendor = self.vendors[provider_id]
            model_id = self._default_id(vendor)
            if model_id and self.auth_status(provider_id) is AuthStatus.AUTHENTICATED:
                return self.resolve(f"{provider_id}/{model_id}")
        return self.resolve(f"local/{self.vendors['local'].default_model}")

    def missing_default(self) -> ModelNotFound | None:
        """What to tell a user whose own provider can be used, but not without the name of a model."""
        own = [self.vendors[provider_id] for provider_id in self._own_providers]
        lacking = (one for one in own if not self._default_id(one) and self.auth_status(one.id) == "authenticated")
        return next((self._no_default(one) for one in lacking), None)

    def credential_for(self, model: Model, account: str | None = None) -> Credential | None:
        """The credential for a resolved model; `None` where none is needed; `AuthRequired` says what to do."""
        vendor = self.vendors.find(model.provider)
        if vendor is None:
            return None
        return self._keychain.credential_for(self._key_source(vendor), model.base_url, account)

    def with_account(self, model: Model, credential: Credential) -> Model:
        """The model with what the login learned: headers that name the account, and the address made for it."""
        data = credential.provider_data
        if not data:
            return model
        vendor = self.vendors.find(model.provider)
        carried = vendor.account_headers if vendor else {}
        headers = {header: data[key] for header, key in carried.items() if key in data}
        base_url, options = data.get("base_url", model.base_url), model.options | data
        return msgspec.structs.replace(model, base_url=base_url, headers=model.headers | headers, options=options)

    def auth_status(self, provider_id: str) -> AuthStatus:
        """Whether a provider can be used with the stored logins and the environment. A broken variable is `failed`; a
        store that cannot be read raises, because then no status is known."""
        vendor = self.vendors.find(provider_id)
        if vendor is None:
            return AuthStatus.UNKNOWN
        try:
            found = self._keychain.find(self._key_source(vendor))
        except (InvalidRequest, AuthRequired):
            return AuthStatus.FAILED
        return AuthStatus.AUTHENTICATED if found or not vendor.needs_key else AuthStatus.LOGIN_REQUIRED

    def descriptors(
        self, listings: Mapping[str, ProviderListing] | None = None, known: Mapping[str, AuthStatus] | None = None
    ) -> list[ModelDescriptor]:
        """Every model to offer: what a vendor listed, where it was asked and answered, else the rows we have. `known`
        are statuses that take precedence, such as a login in progress. Retired models are not offered."""
        listings = listings or {}
        dynamic = {provider_id: listing.rows for provider_id, listing in listings.items() if listing.error is None}
        static = {(row.provider, row.id): row for row in (*builtin().models, *self._extra)}
        rows = [row for row in static.values() if row.provider not in dynamic and not row.retired]
        rows += [row for told in dynamic.values() for row in told]
        statuses = {provider_id: self._shown_status(provider_id, listings, known or {}) for provider_id in self.vendors}
        return [
            descriptor_of(
                row,
                row.api or self.vendors[row.provider].api,
                statuses[row.provider],
                ModelSource.DYNAMIC if row.provider in dynamic else ModelSource.STATIC_FALLBACK,
                base_url=self._shown_base_url(self.vendors[row.provider], row.api),
            )
            for row in rows
        ]

    def knows(self, model: Model, capability: ModelCapability) -> bool:
        """Whether a capability that a resolved model does not have is known to be missing: by the catalog, by the
        vendor's list, or because the caller stated what its model can do."""
        vendor = self.vendors.find(model.provider)
        if model.capabilities not in (_UNSTATED_CAPABILITIES, ASSUMED_CAPABILITIES):
            learned = vendor is not None and model.id in self._learned.get(vendor.id, {})
            return not learned or capability not in _UNLISTED or (model.provider, model.id) in self._rows()
        return vendor is not None and (vendor.id, model.id) in self._rows()

    def offered_rows(self) -> list[ModelRow]:
        """The models that are known without asking vendors."""
        return [row for row in (*builtin().models, *self._extra) if not row.retired]

    def _shown_status(
        self, provider_id: str, listings: Mapping[str, ProviderListing], known: Mapping[str, AuthStatus]
    ) -> AuthStatus:
        listing = listings.get(provider_id)
        if listing is not None and isinstance(listing.error, AuthRequired):
            return AuthStatus.FAILED
        try:
            own = self.auth_status(provider_id)
        except MakaiError:
            return AuthStatus.FAILED  # one provider never fails the whole listing (MK-MODEL-015)
        return own if own is AuthStatus.FAILED else known.get(provider_id, own)

    def _named(self, text: str) -> str:
        """What an alias stands for: one of the user, then one of the catalog, for which the first provider counts that
        can be used now. Any other text stays as it is."""
        text = self.settings.expanded(text)
        if text in builtin().names:
            return self._newest_usable(builtin().names[text]) or text
        vendor = self.vendors.find(text)
        if vendor is None:
            return text
        if model_id := self._default_id(vendor):
            return f"{vendor.id}/{model_id}"
        raise self._no_default(vendor)

    def _default_id(self, vendor: Vendor) -> str:
        """ "" when a model has to be named. Of a provider of the user's own, the first listed model counts."""
        is_own = vendor.id in self._own_providers
        return vendor.default_model or (self._first_row(f"{vendor.id}/*") if is_own else "")

    def _no_default(self, vendor: Vendor) -> ModelNotFound:
        setting = f", or set providers.{vendor.id}.default_model" if vendor.id in self._own_providers else ""
        return ModelNotFound(f"{vendor.id} has no default model.", hint=f"Use `-m {vendor.id}/MODEL`{setting}.")

    def _newest_usable(self, patterns: Iterable[str]) -> str:
        """ "" when no row matches. Without a provider that can be used, the first row: its error says what to do."""
        found = [(pattern.partition("/")[0], self._first_row(pattern)) for pattern in patterns]
        known = [(provider_id, model_id) for provider_id, model_id in found if model_id]
        usable = (pair for pair in known if self.auth_status(pair[0]) is AuthStatus.AUTHENTICATED)
        return "/".join(next(usable, known[0] if known else ()))

    def _first_row(self, pattern: str) -> str:
        """The id of the first model that matches `provider/model id` and is not retired."""
        provider_id, _, ids = pattern.partition("/")
        rows = (row for row in (*builtin().models, *self._extra) if row.provider == provider_id and not row.retired)
        return next((row.id for row in rows if fnmatchcase(row.id, ids)), "")

    def _reference(self, text: str) -> ModelRef:
        provider, slash, rest = text.partition("/")
        api, at, _ = rest.partition("@")
        if at and api in self.vendors.apis:
            return parse_model_ref(text)
        if not slash:
            return self._only_model_called(text)
        vendor = self.vendors.find(provider)
        if vendor is None:
            return self._only_model_called(text)
        if not rest:
            example = f", such as {vendor.id}/{vendor.default_model}" if vendor.default_model else ""
            hint = f"Write {provider}/<model id>{example}."
            raise ModelNotFound(f"model not found: {text!r} names no model.", hint=hint)
        row = self._row(vendor, rest)
        return ModelRef(vendor.id, (row.api if row else "") or vendor.api, rest)

    def _only_model_called(self, model_id: str) -> ModelRef:
        found = [row for (_, known_id), row in self._rows().items() if known_id == model_id]
        if not found:
            # Only then: a fetched list must not make a name ambiguous that was unique before.
            found = [rows[model_id] for rows in self._learned.values() if model_id in rows]
        live = [row for row in found if not row.retired] or found
        if len(live) > 1:
            choices = ", ".join(f"{row.provider}/{model_id}" for row in live)
            raise InvalidRequest(f"several providers have a model {model_id!r}.", hint=f"Choose one of {choices}.")
        if not live:
            provider, slash, _ = model_id.partition("/")
            raise self._unknown_provider(provider) if slash else self._unknown_model(model_id)
        row = live[0]
        return ModelRef(row.provider, row.api or self.vendors[row.provider].api, model_id)

    def _canonical(self, ref: ModelRef) -> ModelRef:
        """The ref with legacy aliases remapped (MK-MODEL-023), those of provider names too."""
        vendor = self.vendors.find(ref.provider_id)
        if vendor is not None and vendor.id != ref.provider_id:
            ref = ModelRef(vendor.id, ref.api, ref.model_id)
        target = builtin().aliases.get(str(ref))
        return parse_model_ref(target) if target else ref

    def _model(self, ref: ModelRef) -> Model:
        vendor = self.vendors.find(ref.provider_id)
        if vendor is None:
            raise self._unknown_provider(ref.provider_id)
        if ref.api not in vendor.paths:
            raise _not_spoken(vendor, ref.api)
        row = self._row(vendor, ref.model_id)
        if row is not None and row.retired:
            successor = f"its successor is {row.successor}"
            raise ModelRetired(f"model not found: {ref} has been retired by {vendor.name}; {successor}")
        if row is None and not vendor.open_ended:
            known = ", ".join(row_id for provider, row_id in self._rows() if provider == vendor.id)
            absent = f"model not found: {vendor.id} has no {_quoted(ref.model_id)}."
            raise ModelNotFound(absent, hint=f"It has {known or 'none yet'}.")
        model = self._build(vendor, ref.api, ref.model_id, row)
        if not model.base_url and vendor.base_url_variable:
            hint = f"Set {vendor.base_url_variable} to its address."
            raise InvalidRequest(f"nothing says where {vendor.name} is.", hint=hint)
        return model

    def _build(self, vendor: Vendor, api: str, model_id: str, row: ModelRow | None) -> Model:
        quirks = vendor.quirks
        if row is not None and row.efforts:
            quirks = msgspec.structs.replace(quirks, reasoning_efforts=row.efforts)
        return Model(
            id=model_id,
            api=api,
            provider=vendor.id,
            base_url=base_url_of(vendor, api, self._environ, self._runtime_urls),
            name=row.name if row else model_id,
            capabilities=row.capabilities if row else ASSUMED_CAPABILITIES,
            context_window=row.context_window if row else None,
            max_output_tokens=row.max_output_tokens if row else None,
            reasoning_default=row.reasoning_default if row else None,
            price=row.price if row else None,
            quirks=quirks,
            headers=vendor.headers,
            options=options_of(vendor, self._environ),
        )

    def _row(self, vendor: Vendor, model_id: str) -> ModelRow | None:
        return self._learned.get(vendor.id, {}).get(model_id) or self._rows().get((vendor.id, model_id))

    def _rows(self) -> dict[tuple[str, str], ModelRow]:
        if self._index is None:
            self._index = {}
            for row in (*builtin().models, *self._extra):
                for model_id in (row.id, *row.also):
                    self._index[row.provider, model_id] = row
        return self._index

    def _key_source(self, vendor: Vendor) -> KeySource:
        return key_source_of(vendor, self._environ, self._runtime_urls)

    def _shown_base_url(self, vendor: Vendor, api: str) -> str:
        try:
            return base_url_of(vendor, api or vendor.api, self._environ, self._runtime_urls)
        except InvalidRequest:
            return ""

    def _unknown_provider(self, name: str) -> MakaiError:
        message = f"model not found: there is no provider {_quoted(name)}.{_did_you_mean(name, self.vendors)}"
        return ModelNotFound(message, hint=f"Providers are {', '.join(self.vendors)}.")

    def _unknown_model(self, model_id: str) -> MakaiError:
        if model_id in self.settings.aliases:  # it would have been expanded
            hint = f"Set aliases.{model_id} to a model; `makai models list` shows them."
            return ModelNotFound(f"model not found: the alias {_quoted(model_id)} leads back to itself.", hint=hint)
        live = [row_id for (_, row_id), row in self._rows().items() if not row.retired]
        hint = "Name the provider too, as in provider/model_id; `makai models list` shows the known ones."
        live += [*self.settings.aliases, *builtin().names]
        return ModelNotFound(f"model not found: {_quoted(model_id)}.{_did_you_mean(model_id, live)}", hint=hint)


def _not_spoken(vendor: Vendor, api: str) -> InvalidRequest:
    return InvalidRequest(f"{vendor.id} does not speak {api!r}.", hint=f"It speaks {', '.join(vendor.apis)}.")


def _quoted(name: str) -> str:
    """A name from outside, for a message: never longer than a line."""
    return repr(name if len(name) <= _MAX_NAME else name[:_MAX_NAME] + "...")


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    if len(name) > _MAX_NAME:
        return ""  # comparing it would cost time
    from difflib import get_close_matches  # only an error pays for this import

    close = get_close_matches(name, sorted(set(known)), n=3)
    return f" Did you mean {' or '.join(close)}?" if close else ""
