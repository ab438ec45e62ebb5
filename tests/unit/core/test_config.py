import pytest

from makai.core import config
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
    login = config.LoginConfig(
        issuer="https://sso.corp.example", client_id="makai", scopes=("openid", "offline_access")
    )
    provider = config.ProviderConfig(name="Our gateway", base_url="https://llm.corp.example/v1", login=login)
    assert config.parse_config(EXAMPLE) == config.Config(providers={"corp": provider})


def test_an_empty_file_is_an_empty_config() -> None:
    assert config.parse_config("") == config.Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[providers", "not valid TOML"),
        ("colour = 1", "colour"),
        ("[providers.x]\nname = 'X'", "base_url"),
        ("[providers.x]\nbase_url = 7", "base_url"),
        ("[retries]\nmax_seconds = -1", "line 2: Expected `int` >= 0"),
        ("[retries]\nmax_seconds = 86401", "line 2: Expected `int` <= 86400"),
        ("[retries]\nmax_seconds = 'long'", "line 2: Expected `int | null`"),
        ("notify = 'loud'", "line 1: Invalid enum value 'loud'.* notify is one of bell, desktop, none."),
        ("[permissions]\nallow = 'x'", "line 2: Expected `array`.* permissions.allow is a list"),
        ("[agents.x]\ncommand = []", "line 2: Expected `array` of length >= 1.* agents.x.command is a list"),
        ("[retries]\nseconds = 1", "line 2: Object contains unknown field `seconds`"),
        ("[providers.x]\nbase_url = ''\n[providers.x.login]\nclient_id = 'a'\nflow = 'dance'", "dance"),
    ],
)
def test_a_mistake_is_named(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        config.parse_config(text, "config.toml")


def test_a_mark_of_utf_8_before_the_first_line_is_no_mistake() -> None:
    assert config.parse_config('\ufeffmodel = "sonnet"\r\n') == config.Config(model="sonnet")


def test_permission_rules_are_the_users_and_a_projects_to_write() -> None:
    text = "[permissions]\nallow = ['Bash(git log:*)']\nask = ['WebFetch']\ndeny = ['Read(.env)']"
    permissions = config.PermissionsConfig(allow=("Bash(git log:*)",), ask=("WebFetch",), deny=("Read(.env)",))

    assert config.parse_config(text) == config.Config(permissions=permissions)
    assert config.parse_project_config(text) == config.ProjectConfig(permissions=permissions)


@pytest.mark.parametrize("text", ["[providers.x]\nbase_url = 'https://a.example'", "[permissions]\nalow = []"])
def test_a_project_settles_nothing_else(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^\.makai/config\.toml, line [12]: Object contains unknown field"):
        config.parse_project_config(text)
