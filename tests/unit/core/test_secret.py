import json
import logging
import pickle
import traceback

import msgspec
import pytest

from makai.core.secret import MASK, Secret

CANARY = "sk-canary-5f1c"


@pytest.mark.parametrize("show", [str, repr, "{}".format, "{!r}".format, "%s".__mod__, lambda s: f"{s:>40}".strip()])
def test_a_secret_shows_only_its_mask(show: object) -> None:
    assert callable(show)
    assert show(Secret(CANARY)) == MASK


def test_a_secret_is_not_encoded_pickled_or_copied_into_json() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret(CANARY))
    with pytest.raises(TypeError):
        json.dumps(Secret(CANARY))
    with pytest.raises(TypeError):
        msgspec.json.encode(Secret(CANARY))


@pytest.mark.proof("O7")
def test_a_secret_in_a_log_record_or_a_traceback_is_masked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logging.getLogger("t").info("sending %s", Secret(CANARY))
    try:
        raise ValueError(Secret(CANARY))
    except ValueError:
        shown = traceback.format_exc()
    assert CANARY not in caplog.text + shown.replace(f'"{CANARY}"', "")
    assert MASK in caplog.text


def test_secrets_compare_by_value_and_cannot_be_changed() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert Secret("a").matches("a")
    assert not Secret("")
    with pytest.raises(AttributeError):
        Secret("a")._value = "b"
