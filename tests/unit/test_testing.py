"""`makai.testing`: a scripted model for the tests of other programs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import makai
from makai.testing import ScriptedModel, call, cut, fail, hold, pause, say, stop, think, usage

SOURCES = Path(__file__).resolve().parents[2] / "src"


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sun in {city}"


async def test_answers_come_in_order_and_requests_are_remembered() -> None:
    with ScriptedModel(
        [think("Hm."), "Let me look.", call("weather", city="Rome")], ["It is ", say("sunny.")]
    ) as model:
        async with model.connect() as client:
            answer = await client.agent.run(
                model_ref=model.ref, messages="Rome?", tools=[weather], system_prompt="Be brief."
            )
            first, second = model.requests

    assert answer.text == "It is sunny."
    assert (first.system_prompt, first.tools, first.tool_results) == ("Be brief.", ("weather",), ())
    assert [result.text() for result in second.tool_results] == ["sun in Rome"]
    assert second.text == "Be brief.\nRome?\nLet me look.\nsun in Rome"
    model.assert_asked(2)
    model.assert_sent("Rome?")
    model.assert_never_sent("Paris")
    model.assert_offered("weather")
    model.assert_tool_result("weather", "sun in Rome")
    model.assert_finished()


async def test_what_is_not_so_fails_with_what_is() -> None:
    with ScriptedModel("One.", "Two.") as model:
        with pytest.raises(AssertionError, match="the model was not asked"):
            model.assert_sent("x")
        async with model.connect() as client:
            await client.agent.run(model_ref=model.ref, messages="My key is s3cret")
        wrong: list[tuple[Any, str]] = [
            (lambda: model.assert_asked(2), "the model was asked once, not 2 times"),
            (lambda: model.assert_sent("other"), "was not sent 'other', but:\n.*My key is s3cret"),
            (lambda: model.assert_never_sent("s3cret"), "request 1 contains 's3cret'"),
            (lambda: model.assert_offered("look"), "was not offered look, but: nothing"),
            (lambda: model.assert_tool_result("look", "x"), r"no such result; there are: \[\]"),
            (model.assert_finished, "the model gave 1 of its 2 answers"),
        ]
        for check, said in wrong:
            with pytest.raises(AssertionError, match=f"(?s){said}"):
                check()


async def test_a_script_that_is_over_fails_and_one_that_repeats_does_not() -> None:
    with ScriptedModel("Once.") as model, ScriptedModel("Always.", repeat_last=True) as endless:
        for each, said in ((model, "no further answer"), (endless, "")):
            async with each.connect() as client:
                first = await client.agent.run(model_ref=each.ref, messages="A")
                again = client.agent.run(model_ref=each.ref, messages="B", options={"session_id": first.session_id})
                if not said:
                    assert (await again).text == "Always."
                    continue
                with pytest.raises(makai.MakaiError, match=said):
                    await again


async def test_pauses_take_no_time_and_a_held_model_waits_for_the_test() -> None:
    began = time.monotonic()
    with ScriptedModel(["Slow", pause(3600), " work.", hold(), " Done."]) as model:
        async with model.connect() as client:
            asking = asyncio.create_task(client.provider.complete(model_ref=model.ref, messages="Go"))
            await model.held()
            assert not asking.done()
            model.release()
            answer = await asking

    assert (answer.text, model.paused_s) == ("Slow work. Done.", 3600)
    assert time.monotonic() - began < 600


async def test_a_held_model_can_be_cancelled() -> None:
    with ScriptedModel([hold()]) as model:
        async with model.connect() as client:
            asking = asyncio.create_task(client.agent.run(model_ref=model.ref, messages="Go"))
            await model.held()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        with pytest.raises(TimeoutError):
            await model.held(timeout_s=0.0)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (fail("context_overflow", "Too long."), "context_overflow"),
        (fail("rate_limited", retry_after_s=2.5), "rate_limited"),
        (["Half", cut()], "provider_error"),
    ],
    ids=["fail", "limited", "cut"],
)
async def test_failures_are_those_of_a_provider(answer: Any, code: str) -> None:
    with ScriptedModel(answer) as model:
        async with model.connect() as client:
            events = [event async for event in client.provider.stream(model_ref=model.ref, messages="Go")]

    last = events[-1]
    assert isinstance(last, makai.ErrorEvent)
    assert (last.code, last.retry_after_ms) == (code, 2500 if code == "rate_limited" else None)


@pytest.mark.parametrize("broken", [["Half", cut()], [cut()]], ids=["in the middle", "at once"])
async def test_an_answer_that_is_asked_for_again_is_the_next_one(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The log dates an answer by its event, the model by its first word: usually, but not always, the same millisecond.
    monkeypatch.setattr("makai.providers.scripted.time", SimpleNamespace(time_ns=lambda: 0))
    with ScriptedModel(call("weather", city="Rome"), broken, "It is sunny.", "Still sunny.") as model:
        async with model.connect() as client:
            first = await client.agent.run(model_ref=model.ref, messages="Rome?", tools=[weather])
            with pytest.raises(AssertionError, match="the model gave 3 of its 4 answers"):
                model.assert_finished()
            options = {"session_id": first.session_id}
            second = await client.agent.run(model_ref=model.ref, messages="And now?", tools=[weather], options=options)

    assert (first.text, second.text) == ("It is sunny.", "Still sunny.")
    model.assert_asked(4)
    model.assert_finished()


def test_answers_for_words_usage_and_reasons_with_the_synchronous_client() -> None:
    with (
        ScriptedModel(["Hi.", usage(3, 4), stop("max_tokens")], when={"refund": "No refunds."}) as model,
        model.connect_sync() as client,
    ):
        plain = client.provider.complete(model_ref=model.ref, messages="Hello")
        special = client.provider.complete(model_ref=model.ref, messages="A REFUND please")

    assert (plain.text, plain.usage, plain.stop_reason) == (
        "Hi.",
        makai.UsageSummary(input=3, output=4, cost_usd=0.0),
        "max_tokens",
    )
    assert special.text == "No refunds."


async def test_the_language_of_scenarios_and_other_processes_follow_the_same_script() -> None:
    text = "Two\n\nlines: with  spaces\n---\n# and more"
    with ScriptedModel(text) as model, ScriptedModel.from_scenario("say: Written.") as written:
        for each, said in ((model, text), (written, "Written.")):
            environ = {**each.environ, "PYTHONPATH": str(SOURCES)}
            finished = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "makai", "run", "-m", each.ref, "Go"],
                env=environ,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert (finished.returncode, finished.stdout.strip()) == (0, said)
            assert (await makai.complete(each.ref, "Go", environ=each.environ)).text == said


async def test_no_key_of_the_user_is_read_and_the_home_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    with ScriptedModel("Hi.") as model:
        home = model.home
        async with model.connect() as client:
            status = {provider.id: provider.auth_status for provider in await client.auth.list_providers()}
        assert "sk-of-the-user" not in model.environ.values()
        assert home.is_dir()

    assert status["openai"] == "login_required"
    assert not home.exists()


def test_wrong_use_is_explained() -> None:
    with pytest.raises(makai.InvalidRequest, match="outside of `with`"):
        _ = ScriptedModel("Hi.").environ
    with pytest.raises(makai.InvalidRequest, match="consists of texts and steps, not of 3"):
        ScriptedModel(["a", 3])  # type: ignore[list-item]
    with pytest.raises(makai.InvalidRequest, match="repeat_last needs an answer"):
        ScriptedModel(repeat_last=True)
