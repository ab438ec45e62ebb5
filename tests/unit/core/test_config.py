import pytest

from makai.core.config import Config, LoginConfig, ProviderConfig, parse_config
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
