import pytest

from makai.core.config import parse_config, parse_project_config
from makai.core.config_text import TEMPLATE, value_in, with_value, without
from makai.core.errors import InvalidRequest

FILE = """\
# mine
effort = "low" # for now

[providers.corp] # ours
base_url = "http://127.0.0.1:9/v1"
"""


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("effort", "high", FILE.replace('"low"', '"high"')),
        ("model", "sonnet", FILE.replace("for now\n", 'for now\nmodel = "sonnet"\n')),
        ("aliases.fast", "haiku", f'{FILE}\n[aliases]\nfast = "haiku"\n'),
        ("providers.corp.needs_key", "false", f"{FILE}needs_key = false\n"),
        ("providers.corp.models", '["a", "b"]', f'{FILE}models = ["a", "b"]\n'),
        ("providers.corp.default_model", "7", f'{FILE}default_model = "7"\n'),
    ],
)
def test_a_value_is_set_and_everything_else_stays(key: str, value: str, expected: str) -> None:
    assert with_value(FILE, key, value, parse_config) == expected


def test_a_sandbox_that_is_written_as_a_table_stays_one() -> None:
    text = '[sandbox]\nlevel = "read-only" # careful\n'
    changed = with_value(text, "sandbox", "full-access", parse_config)
    assert changed == '[sandbox]\nlevel = "full-access" # careful\n'


@pytest.mark.parametrize(
    ("key", "value", "message", "hint"),
    [
        (
            "mode",
            "nevr_ask",
            "mode cannot be 'nevr_ask'. Did you mean never_ask?",
            "ask, accept_edits, plan, never_ask",
        ),
        ("efort", "low", "efort cannot be 'low': Object contains unknown field `efort`", "Did you mean effort?"),
        ("effort.x", "low", "effort.x cannot be 'low'", "Set its value"),
        ("aliases.a/b", "x", "aliases.a/b cannot be 'x': 'a/b' cannot be an alias.", "one word"),
        ("providers.corp.needs_key", "maybe", "providers.corp.needs_key cannot be 'maybe'.", "It is true or false."),
        (
            "mode",
            "asks",
            "mode cannot be 'asks'. Did you mean ask?",
            "It is one of ask, accept_edits, plan, never_ask.",
        ),
        ("effort", "huge", "effort cannot be 'huge'.", "It is one of off, minimal, low, medium, high, xhigh."),
        ("sandbox", "no", "sandbox cannot be 'no'.", "It is one of read-only, workspace-write, full-access."),
        ("notify", "loud", "notify cannot be 'loud'.", "It is one of bell, desktop, none."),
        ("sandbox.level", "x", "sandbox.level cannot be 'x'.", "read-only, workspace-write, full-access"),
        ("permissions.allow", "Bash(ls)", "permissions.allow cannot be 'Bash(ls)'.", 'a list: ["first", "second"].'),
        ("a..b", "x", "'a..b' is no name of a setting.", "aliases.fast"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_possible(key: str, value: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        with_value(FILE, key, value, parse_config)
    assert refused.value.message.startswith(message)
    assert hint in (refused.value.hint or "")


def test_a_broken_file_is_not_changed() -> None:
    with pytest.raises(InvalidRequest, match="not valid TOML"):
        with_value("model = sonnet", "model", "opus", parse_config)


def test_a_wrong_value_can_be_mended() -> None:
    wrong = 'effort = "low"\nmode = "yolo"\n'

    assert with_value(wrong, "mode", "ask", parse_config) == 'effort = "low"\nmode = "ask"\n'
    assert without(wrong, "mode", parse_config) == 'effort = "low"\n'
    with pytest.raises(InvalidRequest, match="yolo"):
        with_value(wrong, "effort", "high", parse_config)


def test_a_project_may_set_no_provider() -> None:
    with pytest.raises(InvalidRequest, match="unknown field `providers`"):
        with_value("", "providers.corp.base_url", "http://x", parse_project_config)


def test_a_removed_value_leaves_everything_else() -> None:
    assert without(FILE, "effort", parse_config) == FILE.replace('effort = "low" # for now\n', "")
    with pytest.raises(InvalidRequest, match="model is not set in this file"):
        without(FILE, "model", parse_config)


def test_a_value_is_read_by_its_dotted_name() -> None:
    assert value_in(FILE, "providers.corp.base_url") == "http://127.0.0.1:9/v1"
    assert value_in(FILE, "providers.corp.base_url.x") is None


def test_the_template_is_valid_and_stays_so_without_its_comment_signs() -> None:
    assert parse_config(TEMPLATE) == parse_config("")
    lines = [line.removeprefix("# ") for line in TEMPLATE.splitlines() if "=" in line or "[" in line]
    assert parse_config("\n".join(lines)).settings.aliases == {"fast": "haiku"}
