import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.config import Config, parse_config, parse_project_config
from makai.core.errors import InvalidRequest
from makai.core.settings import NAMES, Settings, SettingsLayer, Source, resolve_settings

MODES = ("plan", "ask", "accept_edits", "never_ask")
SANDBOXES = ("read-only", "workspace-write", "full-access")
DEFAULTS: dict[str, Source] = dict.fromkeys(NAMES, "default")


def test_without_any_source_the_defaults_count() -> None:
    assert resolve_settings() == Settings(sources=DEFAULTS)


def test_a_flag_wins_over_the_environment_that_over_the_project_that_over_the_user() -> None:
    layers = {
        "flags": SettingsLayer(model="flag"),
        "environ": {"MAKAI_MODEL": "environment"},
        "project": SettingsLayer(model="project"),
        "user": SettingsLayer(model="user"),
    }
    names = list(layers)
    found = []
    for count in range(len(names) + 1):
        settings = resolve_settings(**{name: layers[name] for name in names[count:]})  # type: ignore[arg-type]
        found.append((settings.model, settings.sources["model"]))

    expected = [(each, each) for each in ("flag", "environment", "project", "user")]
    assert found == [*expected, (None, "default")]


def test_every_setting_of_the_user_counts_unless_the_project_names_it() -> None:
    user = SettingsLayer(
        agent="claude",
        model="a",
        mode="never_ask",
        effort="high",
        theme="light",
        sandbox="full-access",
        aliases={"x": "a", "y": "b"},
    )
    project = SettingsLayer(effort="low", aliases={"y": "c"})

    assert resolve_settings(user=user, project=project) == Settings(
        agent="claude",
        model="a",
        mode="never_ask",
        effort="low",
        theme="light",
        sandbox="full-access",
        aliases={"x": "a", "y": "c"},
        sources={**dict.fromkeys(NAMES, "user"), "effort": "project", "aliases.x": "user", "aliases.y": "project"},
    )


def test_an_empty_variable_says_nothing() -> None:
    assert resolve_settings(environ={"MAKAI_MODEL": " "}).sources == DEFAULTS


@pytest.mark.parametrize(("mine", "theirs"), list(itertools.product((None, *MODES), MODES)))
def test_a_project_makes_the_mode_stricter_and_never_wider(mine: str | None, theirs: str) -> None:
    user, project = SettingsLayer(mode=mine), SettingsLayer(mode=theirs)  # type: ignore[arg-type]
    allowed = mine or "ask"
    settings = resolve_settings(user=user, project=project)

    assert settings.mode == min(allowed, theirs, key=MODES.index)
    is_wider = MODES.index(theirs) > MODES.index(allowed)
    told = f"The project's mode {theirs!r} is ignored: it is wider than your own {allowed!r}."
    assert settings.ignored == ((told,) if is_wider else ())


@pytest.mark.parametrize(("mine", "theirs"), list(itertools.product((None, *SANDBOXES), SANDBOXES)))
def test_a_project_makes_the_sandbox_stricter_and_never_wider(mine: str | None, theirs: str) -> None:
    user, project = SettingsLayer(sandbox=mine), SettingsLayer(sandbox=theirs)  # type: ignore[arg-type]

    settings = resolve_settings(user=user, project=project)

    assert settings.sandbox == min(mine or "workspace-write", theirs, key=SANDBOXES.index)


def test_a_flag_is_the_users_own_word_and_may_widen() -> None:
    flags = SettingsLayer(mode="never_ask", sandbox="full-access")
    settings = resolve_settings(flags=flags, project=SettingsLayer(mode="plan", sandbox="read-only"))

    assert (settings.mode, settings.sandbox) == ("never_ask", "full-access")


def test_a_caller_who_may_not_approve_gets_no_wider_default() -> None:
    wide = Settings(mode="never_ask", sandbox="full-access")

    assert wide.within("ask", "workspace-write") == Settings()
    strict = Settings(mode="plan", sandbox="read-only")
    assert strict.within("ask", "workspace-write") == strict


@pytest.mark.parametrize(
    ("aliases", "name", "expected"),
    [
        ({"fast": "haiku"}, "fast", "haiku"),
        ({"a": "b", "b": "c"}, "a", "c"),
        ({"sonnet": "sonnet"}, "sonnet", "sonnet"),
        ({"fast": "haiku"}, "other", "other"),
    ],
)
def test_an_alias_stands_for_a_model_also_through_another_alias(
    aliases: dict[str, str], name: str, expected: str
) -> None:
    assert Settings(aliases=aliases).expanded(name) == expected


@given(st.dictionaries(st.sampled_from("abcde"), st.sampled_from("abcdef")), st.sampled_from("abcdef"))
def test_aliases_that_name_each_other_come_to_an_end(aliases: dict[str, str], name: str) -> None:
    assert Settings(aliases=aliases).expanded(name) in {*aliases.values(), name}


WRITTEN = """
model = "sonnet"
mode = "plan"
effort = "low"
theme = "dark"
sandbox = "read-only"
[aliases]
fast = "haiku"
"""
LAYER = SettingsLayer(
    model="sonnet", mode="plan", effort="low", theme="dark", sandbox="read-only", aliases={"fast": "haiku"}
)


def test_the_settings_of_a_user_and_of_a_project_are_written_alike() -> None:
    assert parse_config(WRITTEN).settings == LAYER
    assert parse_project_config(WRITTEN).settings == LAYER


def test_the_sandbox_can_be_written_as_a_table_too() -> None:
    assert parse_config('[sandbox]\nlevel = "full-access"').settings == SettingsLayer(sandbox="full-access")
    assert Config().settings == SettingsLayer()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            '\nmode = "asks"',
            "f.toml, line 2: Invalid enum value 'asks' - at `$.mode`",
            "mode is one of ask, accept_edits, plan, never_ask.",
        ),
        ('modle = "x"', "f.toml, line 1: Object contains unknown field `modle`", "Did you mean mode or model?"),
        ("model = sonnet", "f.toml is not valid TOML: Invalid value (at line 1, column 9)", "makai config edit"),
        ("[aliases]\na = 'b'\nfast = 3", "f.toml, line 3: Expected `str`, got `int`", "docs/configuration.md"),
        ("[aliases]\n'a/b' = 'c'", "f.toml: 'a/b' cannot be an alias.", "one word"),
        ("[aliases]\nb = ' '", "f.toml: the alias 'b' names no model.", "haiku"),
        ("model = ''", "f.toml: the model is empty.", "remove the line"),
        (
            "[providers.x]\nbase_url = ''\nmodles = []",
            "f.toml, line 3: Object contains unknown field `modles`",
            "schema",
        ),
        ("[providers]\nok = { base_url = '' }\n[providers.x]\nname = 'X'\nbase_url = 7", "f.toml, line 5: ", "schema"),
        ("[permissions]\nallow = [1]", "f.toml, line 2: Expected `str`, got `int`", "permissions.allow is a list"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line_and_what_to_write(text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_config(text, "f.toml")
    assert refused.value.message.startswith(message)
    assert hint in (refused.value.hint or "")


def test_a_project_cannot_choose_the_agent() -> None:
    with pytest.raises(InvalidRequest, match="line 2: a project cannot choose the agent") as refused:
        parse_project_config('mode = "plan"\nagent = "claude"\n')

    assert (
        refused.value.hint == "An agent is a program, so only your own file names one: `makai config set agent NAME`."
    )


@pytest.mark.parametrize(
    ("named", "model", "expected"),
    [
        (None, None, "claude"),
        (None, "opus", "claude"),
        (None, "openai/gpt-6", None),  # a model of makai's own agent
        ("native", "opus", "native"),
        ("codex", "openai/gpt-6", "codex"),
    ],
)
def test_the_default_agent_counts_unless_another_one_or_a_model_of_makai_is_named(
    named: str | None, model: str | None, expected: str | None
) -> None:
    assert Settings(agent="claude").agent_for(named, model) == expected
