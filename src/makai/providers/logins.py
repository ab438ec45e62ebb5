"""The user's logins as the runtime uses them. What only a login needs is imported when one starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from makai.auth.credentials import Credential, origin_of
from makai.auth.opening import open_account_store
from makai.auth.store import AccountStore, Keychain, credential_of
from makai.catalog.models import AuthStatus, ModelRow
from makai.catalog.resolver import Resolver
from makai.catalog.vendor_table import builtin_vendors
from makai.core.config import Config, parse_config, place_of
from makai.core.errors import InvalidRequest
from makai.core.home import home_directory
from makai.core.secret import Secret
from makai.core.settings import Settings, resolve_settings

if TYPE_CHECKING:
    from makai.auth.refresh import Refresher
    from makai.auth.runtime import AuthRuntime

CONFIG_FILE = "config.toml"


class Logins:
    def __init__(
        self, environ: Mapping[str, str], home: Path, config: Config | None = None, store: AccountStore | None = None
    ) -> None:
        """Without a `config`, that of the home directory is read, and without a `store`, the one that it names."""
        self._environ = environ
        self.config = config or read_config(home / CONFIG_FILE)
        self.store = store or open_account_store(home, self.config, environ)
        self.keychain = Keychain(environ, self.store)
        from makai.catalog.logins import additional_rows, additional_vendors

        self.vendors = builtin_vendors().with_rows(additional_vendors(self.config, environ))
        self.rows = additional_rows(self.config, environ)
        self.settings = resolve_settings(environ=environ, user=self.config.settings)
        """For work without a folder, which no project has a say in."""
        self._auth: AuthRuntime | None = None
        self._refresher: Refresher | None = None

    def resolver(self, rows: Iterable[ModelRow] = ()) -> Resolver:
        """Names to models, with the user's providers, logins and settings. `rows` are models that the caller knows."""
        return Resolver(
            self._environ,
            keychain=self.keychain,
            vendors=self.vendors,
            rows=[*rows, *self.rows],
            settings=self.settings,
            own_providers=self.config.providers,
        )

    def auth(self) -> AuthRuntime:
        self._make()
        assert self._auth is not None
        return self._auth

    async def refreshed(self, credential: Credential, *, rejected: Secret | None = None) -> Credential:
        """The credential of the same account, refreshed where needed (MK-AUTH-019)."""
        self._make()
        assert self._refresher is not None
        account = await self._refresher.fresh(credential.provider_id, credential.account, rejected=rejected)
        return credential_of(credential.provider_id, account)

    def statuses(self) -> dict[str, AuthStatus]:
        return {provider.id: AuthStatus(provider.auth_status) for provider in self.auth().list_providers()}

    async def close(self) -> None:
        """End running logins; let a refresh that is under way store its answer."""
        if self._auth is not None:
            await self._auth.close()
        if self._refresher is not None:
            await self._refresher.aclose()
            await self._http.close()
        self.store.close()

    def _make(self) -> None:
        if self._auth is not None:
            return
        from makai.auth.http import AuthHttp
        from makai.auth.refresh import REFRESHERS, Refresher
        from makai.auth.runtime import AuthRuntime
        from makai.catalog.logins import login_providers

        self._http = AuthHttp()
        refresher = Refresher(self.store, self._http, REFRESHERS)
        providers = login_providers(self.vendors, self.config, self._environ)
        self._auth = AuthRuntime(self.store, providers, self._http, self._environ, refresher=refresher)
        self._refresher = refresher


def user_settings(environ: Mapping[str, str]) -> Settings:
    """What counts for work that no project has a say in. Blocks."""
    config = read_config(home_directory(environ) / CONFIG_FILE)
    return resolve_settings(environ=environ, user=config.settings)


def read_config(path: Path) -> Config:
    """The user's settings; the defaults when there is no such file. Blocks."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from error
    return checked_config(text, str(path))


def checked_config(text: str, where: str) -> Config:
    """The settings in this text; `InvalidRequest` also when the address of a provider cannot be used."""
    config = parse_config(text, where)
    for name, provider in config.providers.items():
        try:
            origin_of(provider.base_url)
        except InvalidRequest as error:
            place = place_of(text, ["providers", name, "base_url"], where)
            raise InvalidRequest(f"{place}: {error.message}", hint=error.hint) from None
    return config
