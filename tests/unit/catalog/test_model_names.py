"""Short names of models: aliases of the user, of the catalog, and ids of providers."""

from pathlib import Path

import pytest

from makai.catalog.model_settings import model_for
from makai.catalog.models import builtin
from makai.catalog.resolver import Resolver
from makai.core.errors import InvalidRequest, ModelNotFound
from makai.core.settings import Settings, SettingsLayer, resolve_settings
from makai.providers.logins import Logins
from makai.providers.runtime import ModelRuntime

OWN_SERVER = '[providers.corp]\nbase_url = "http://127.0.0.1:9/v1"\n'


def name_of(resolver: Resolver, name: str | None) -> str:
    model = resolver.resolve(name)
    return f"{model.provider}/{model.id}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sonnet", "anthropic/claude-sonnet-5-5"),
        ("opus", "anthropic/claude-opus-5-5"),
        ("haiku", "anthropic/claude-haiku-5-5"),
        ("gpt", "openai/gpt-6.1-sol"),
        ("gemini", "google/gemini-3.8-flash"),
        ("local", "local/smollm2-135m"),
        ("claude", "anthropic/claude-sonnet-5-5"),
        ("mistral", "mistral/mistral-medium-latest"),
    ],
)
def test_a_short_name_is_the_newest_model_of_its_family(name: str, expected: str) -> None:
    assert name_of(Resolver({}), name) == expected


def test_a_short_name_takes_the_first_provider_that_can_be_used() -> None:
    assert name_of(Resolver({"OPENROUTER_API_KEY": "k"}), "sonnet") == "openrouter/anthropic/claude-sonnet-5.5"
    both = {"OPENROUTER_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    assert name_of(Resolver(both), "sonnet") == "anthropic/claude-sonnet-5-5"


def test_every_short_name_of_the_catalog_names_models_that_are_offered() -> None:
    offered = {(row.provider, row.id) for row in builtin().models if not row.retired}
    for name in builtin().names:
        model = Resolver({}).resolve(name)
        assert (model.provider, model.id) in offered


def test_the_rows_of_a_family_are_listed_from_the_newest_on() -> None:
    """A short name takes the first row that matches, so the order of the file says which model is the newest."""

    def version(model_id: str) -> list[int]:
        return [int(part) for part in model_id.replace(".", "-").split("-") if part.isdecimal() and len(part) < 4]

    for family in ("claude-sonnet-", "claude-opus-", "claude-haiku-"):
        ids = [row.id for row in builtin().models if row.id.startswith(family) and not row.retired]
        assert ids == sorted(ids, key=version, reverse=True)


def test_the_users_alias_wins_over_the_catalogs() -> None:
    settings = Settings(aliases={"sonnet": "openai/gpt-5.5", "fast": "haiku"})
    resolver = Resolver({}, settings=settings)

    assert name_of(resolver, "sonnet") == "openai/gpt-5.5"
    assert name_of(resolver, "fast") == "anthropic/claude-haiku-5-5"


@pytest.mark.parametrize(("name", "meant"), [("sonet", "sonnet"), ("opuss", "opus"), ("fats", "fast")])
def test_an_unknown_short_name_is_answered_with_the_nearest_one(name: str, meant: str) -> None:
    resolver = Resolver({}, settings=Settings(aliases={"fast": "haiku"}))
    with pytest.raises(ModelNotFound, match=f"Did you mean .*{meant}"):
        resolver.resolve(name)


def test_the_model_of_the_settings_is_the_default() -> None:
    resolver = Resolver({"OPENAI_API_KEY": "k"}, settings=Settings(model="opus"))
    assert name_of(resolver, None) == "anthropic/claude-opus-5-5"


@pytest.mark.parametrize(
    ("layers", "place"),
    [
        ({"environ": {"MAKAI_MODEL": "sonet"}}, "MAKAI_MODEL: model not found"),
        ({"user": SettingsLayer(model="sonet")}, "`model` in config.toml: model not found"),
        ({"project": SettingsLayer(model="sonet")}, r"`model` in .makai/config.toml: model not found"),
    ],
)
def test_a_setting_that_names_no_model_says_where_it_is_written(layers: dict[str, SettingsLayer], place: str) -> None:
    with pytest.raises(ModelNotFound, match=place):
        model_for(Resolver({}), resolve_settings(**layers))  # type: ignore[arg-type]


def test_the_creator_of_a_session_wins_over_its_settings() -> None:
    settings = Settings(model="opus", aliases={"fast": "haiku"})
    assert model_for(Resolver({}), settings, "fast").id == "claude-haiku-5-5"
    assert model_for(Resolver({}), settings).id == "claude-opus-5-5"


def resolver_of(home: Path, config: str, **environ: str) -> Resolver:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(config)
    return Logins(environ, home).resolver()


def test_a_server_of_the_users_own_without_a_key_is_the_default_when_nothing_else_can_be_used(tmp_path: Path) -> None:
    config = OWN_SERVER + 'models = ["big", "small"]\n'

    assert name_of(resolver_of(tmp_path / "a", config), None) == "corp/big"
    assert name_of(resolver_of(tmp_path / "b", config + 'default_model = "small"\n'), None) == "corp/small"
    assert name_of(resolver_of(tmp_path / "c", config, OPENAI_API_KEY="k"), None) == "openai/gpt-6.1-sol"


def test_a_provider_without_a_default_model_says_how_to_name_one(tmp_path: Path) -> None:
    resolver = resolver_of(tmp_path / "home", OWN_SERVER)
    told = "corp has no default model. Use `-m corp/MODEL`, or set providers.corp.default_model."

    assert str(resolver.missing_default()) == told
    with pytest.raises(ModelNotFound) as own:
        resolver.resolve("corp")
    with pytest.raises(ModelNotFound) as builtin_one:
        resolver.resolve("azure")
    assert [str(own.value), str(builtin_one.value)] == [
        told,
        "azure has no default model. Use `-m azure/MODEL`.",
    ]
    listed = resolver_of(tmp_path / "listed", OWN_SERVER + 'models = ["big"]\n')
    assert (listed.missing_default(), name_of(listed, "corp")) == (None, "corp/big")


@pytest.mark.parametrize("line", ["needs_key = true", 'key_variable = "CORP_KEY"'])
def test_a_server_of_the_users_own_that_needs_a_key_waits_for_it(tmp_path: Path, line: str) -> None:
    config = f'{OWN_SERVER}models = ["big"]\n{line}\n'

    assert name_of(resolver_of(tmp_path / "home", config), None) == "local/smollm2-135m"
    assert resolver_of(tmp_path / "home", config).auth_status("corp") == "login_required"


def test_a_server_that_needs_no_key_takes_one_all_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    resolver_of(home, OWN_SERVER)
    logins = Logins({}, home)

    assert {provider.id: provider.auth_status for provider in logins.auth().list_providers()}["corp"] == "authenticated"


async def test_the_environment_of_a_runtime_names_its_default_model(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('model = "opus"\n[aliases]\nmine = "openai/gpt-5.5"\n')
    async with ModelRuntime({}, home=tmp_path) as runtime:
        assert runtime.resolve(None).id == "claude-opus-5-5"
    async with ModelRuntime({"MAKAI_MODEL": "mine"}, home=tmp_path) as runtime:
        assert runtime.resolve(None).id == "gpt-5.5"


def test_two_aliases_that_name_each_other_are_no_model() -> None:
    with pytest.raises((ModelNotFound, InvalidRequest)):
        Resolver({}, settings=Settings(aliases={"a": "b", "b": "a"})).resolve("a")
