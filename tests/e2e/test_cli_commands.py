"""The other commands: what they print to a pipe, and how they end."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support.cli import Cli, Finished
from support.upstream import answers, upstream

import makai as package
from makai.catalog.models import ModelsResponse
from makai.cli.commands import COMMANDS

KEY = "sk-" + "".join(random.choices("QXZqxz", k=40))
"""No six characters of it occur in anything that is printed, such as the name of a folder."""
HEAVY = ("aiohttp", "asyncio", "msgspec", "rich")


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


async def test_the_version_is_printed(makai: Cli) -> None:
    assert await makai("--version") == Finished(0, f"makai {package.__version__}\n", "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["--version", "run -m scripted/echo hello", "sessions list", "stdio", "acp"])
def test_a_closed_standard_stream_does_not_end_it(makai: Cli, command: str, closed: str) -> None:
    shell = f'exec "$0" -m makai {command} {closed}'
    finished = subprocess.run(
        ["/bin/sh", "-c", shell, sys.executable],
        env=makai.environment({}),
        input=b"",
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (finished.returncode, b"Traceback" in finished.stderr) == (0, False)
    if command.startswith("run") and closed in ("<&-", "2>&-"):
        assert finished.stdout == b"hello\n"


@pytest.mark.parametrize("command", [("run", "-m", "scripted/echo", "hello"), ("models", "list")])
def test_a_full_disk_is_one_line_and_an_exit_code(makai: Cli, command: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        finished = subprocess.run(
            [sys.executable, "-m", "makai", *command],
            env=makai.environment({}),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )

    assert (finished.returncode, finished.stderr) == (
        1,
        b"makai: The output cannot be written: No space left on device.\n",
    )


@pytest.mark.parametrize(
    "command", [*((name,) for name in COMMANDS), ("models", "list"), ("models", "resolve"), ("models", "pull")]
)
async def test_help_has_examples_and_loads_nothing_heavy(makai: Cli, command: tuple[str, ...]) -> None:
    finished = await makai(*command, "--help", environ={"PYTHONPROFILEIMPORTTIME": "1"})

    loaded = {line.rpartition("|")[2].strip() for line in finished.err.splitlines()}
    assert finished.code == 0
    assert "Example" in finished.out
    assert loaded & set(HEAVY) == set()


async def test_a_list_of_models_is_whole_lines_without_colour_in_a_pipe(makai: Cli) -> None:
    finished = await makai("models", "list")

    refs = [line.split()[0] for line in finished.out.splitlines() if "/" in line.partition(" ")[0]]
    assert (finished.code, finished.err) == (0, "")
    assert "\x1b" not in finished.out
    assert "…" not in finished.out
    assert {"local/smollm2-135m", "anthropic/claude-sonnet-5-5", "vllm/MODEL"} <= set(refs)
    assert "Anthropic: set ANTHROPIC_API_KEY" in finished.out


async def test_only_what_can_be_used_now_is_available(makai: Cli) -> None:
    environ = {"OPENAI_API_KEY": KEY, "OLLAMA_HOST": "127.0.0.1:9"}
    finished = await makai("models", "list", "--available", "--output-format", "json", environ=environ)

    models = msgspec.json.decode(finished.out, type=ModelsResponse).models
    assert finished.code == 0
    assert {model.provider_id for model in models} == {"openai"}


async def test_nothing_available_says_what_to_do(makai: Cli) -> None:
    finished = await makai("models", "list", "--available", "--provider", "local")

    assert (finished.code, finished.out) == (0, "")
    assert "makai doctor" in finished.err


async def test_resolving_prints_the_canonical_ref_first(makai: Cli) -> None:
    finished = await makai("models", "resolve", "local/smollm2")

    assert (finished.code, finished.err) == (0, "")
    assert finished.out.splitlines()[0] == "local/openai-completions@smollm2-135m"
    assert "makai models pull smollm2" in finished.out


async def test_weights_that_are_not_the_pinned_ones_are_refused(makai: Cli, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"GGUF")
    finished = await makai("models", "pull", "--from", str(wrong))

    assert (finished.code, finished.out) == (2, "")
    assert "is not the file that is needed" in finished.err
    assert not list((tmp_path / "models").iterdir())


async def test_the_doctor_fails_when_nothing_can_be_used_and_says_what_to_do(makai: Cli) -> None:
    elsewhere = dict.fromkeys(("VLLM_BASE_URL", "LLAMA_CPP_BASE_URL", "LMSTUDIO_BASE_URL"), "http://127.0.0.1:9")
    finished = await makai("doctor", environ={**elsewhere, "OLLAMA_HOST": "127.0.0.1:9"})

    assert (finished.code, finished.err) == (1, "")
    assert "makai models pull smollm2" in finished.out.partition("What to do next")[2]


async def test_the_doctor_finds_a_key_and_a_server_and_shows_no_part_of_the_key(makai: Cli) -> None:
    async with upstream(answers(b"")) as server:
        environ = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{server.url}/v1?token={KEY}"}
        finished = await makai("doctor", "--output-format", "json", "--offline", environ=environ)

    found = finished.json()
    openai = {one["access"]["provider"]: one for one in found["providers"]}["openai"]
    assert (finished.code, found["usable"], found["default_model"]) == (0, True, "openai/gpt-6.1-sol")
    key = {"ready": True, "status": "ready (OPENAI_API_KEY)", "key_variable": "OPENAI_API_KEY"}
    place = {"base_url": f"{server.url}/v1", "base_url_variable": "OPENAI_BASE_URL"}
    access = {"provider": "openai", "name": "OpenAI", "default_model": "gpt-6.1-sol", **key, **place}
    assert openai == {"access": access, "reach": {}}
    assert not any(KEY[at : at + 6] in finished.out for at in range(3, len(KEY) - 6))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_a_completion_script_is_printed(makai: Cli, shell: str) -> None:
    finished = await makai("completion", shell)

    assert finished.code == 0
    assert "_MAKAI_COMPLETE" in finished.out


async def test_completion_knows_the_commands_and_their_options(makai: Cli) -> None:
    typed = {"COMP_WORDS": "makai run --out", "COMP_CWORD": "2", "_MAKAI_COMPLETE": "bash_complete"}
    finished = await makai(environ=typed)

    assert (finished.code, finished.out) == (0, "plain,--output-format\nplain,--output-last-message\n")
