import pytest

from makai.core.config import (
    Config,
    LoginConfig,
    PermissionsConfig,
    ProjectConfig,
    ProviderConfig,
    parse_config,
    parse_project_config,
)
from makai.core.errors import InvalidRequest

EXAMPLE = """
[providers.corp]
name = "Our gateway"
base_url = "https://llm.corp.example/v1"

[providers.corp.login]
issuer = "https://sso.corp.example"
client_id = "makai"
scopes = ["openid", "offline_access"]
"""


def test_a_config_reads_as_it_is_written() -> None:
    login = LoginConfig(issuer="https://sso.corp.example", client_id="makai", scopes=("openid", "offline_access"))
    provider = ProviderConfig(name="Our gateway", base_url="https://llm.corp.example/v1", login=login)
    assert parse_config(EXAMPLE) == Config(providers={"corp": provider})


def test_an_empty_file_is_an_empty_config() -> None:
    assert parse_config("") == Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[providers", "not valid TOML"),
        ("colour = 1", "colour"),
        ("[providers.x]\nname = 'X'", "base_url"),
        ("[providers.x]\nbase_url = 7", "base_url"),
        ("[providers.x]\nbase_url = ''\n[providers.x.login]\nclient_id = 'a'\nflow = 'dance'", "dance"),
    ],
)
def test_a_mistake_is_named(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parse_config(text, "config.toml")


def test_permission_rules_are_the_users_and_a_projects_to_write() -> None:
    text = "[permissions]\nallow = ['Bash(git log:*)']\nask = ['WebFetch']\ndeny = ['Read(.env)']"
    permissions = PermissionsConfig(allow=("Bash(git log:*)",), ask=("WebFetch",), deny=("Read(.env)",))

    assert parse_config(text) == Config(permissions=permissions)
    assert parse_project_config(text) == ProjectConfig(permissions=permissions)


@pytest.mark.parametrize("text", ["[providers.x]\nbase_url = 'https://a.example'", "[permissions]\nalow = []"])
def test_a_project_settles_nothing_else(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^\.makai/config\.toml: Object contains unknown field"):
        parse_project_config(text)
