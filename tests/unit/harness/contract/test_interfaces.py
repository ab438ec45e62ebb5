"""The contract as a package: pure, cheap to import, structural, with errors that stay recognizable."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest

import makai.harness
from makai.core import errors
from makai.harness import (
    Capabilities,
    Event,
    Handle,
    Harness,
    HarnessProvider,
    InitEvent,
    NoProvider,
    ProviderUnavailable,
    ResultEvent,
    Session,
    SessionNotFound,
    SpawnFailed,
    Spec,
    Unsupported,
    find_error,
)
from makai.harness.contract.endpoint import HarnessCaps, HarnessManifest

CONTRACT = Path(makai.harness.__path__[0]) / "contract"
FIVE = (Unsupported, NoProvider, SessionNotFound, SpawnFailed, ProviderUnavailable)
NO_IO = {"asyncio", "io", "os", "pathlib", "socket", "subprocess", "sys", "tempfile", "threading", "urllib"}


class PlainHandle:
    """A handle that knows the contract only by its shape."""

    session_id = ""

    async def __aiter__(self) -> AsyncIterator[Event]:
        self.session_id = "s"
        yield InitEvent(session_id="s")
        yield ResultEvent(success=True)

    async def inject(self, text: str) -> None:
        raise Unsupported("This harness takes no messages.")

    async def stop(self, *, grace_s: float = 5.0) -> None: ...


class PlainHarness:
    name = "plain"
    capabilities = Capabilities()

    async def spawn(self, spec: Spec) -> Handle:
        return PlainHandle()

    async def resume(self, session_id: str, spec: Spec) -> Handle:
        raise Unsupported("This harness resumes nothing.")

    async def shutdown(self) -> None: ...


class ManifestHarness(PlainHarness):
    def manifest(self) -> HarnessManifest:
        return HarnessManifest(name="plain", human_label="Plain", caps=HarnessCaps())


def imported_modules(path: Path) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module or "")
    return found


@pytest.mark.req("DM-PROV-002")
def test_the_contract_imports_only_the_standard_library_msgspec_and_core() -> None:
    found = set().union(*(imported_modules(path) for path in CONTRACT.glob("*.py")))
    foreign = {
        name
        for name in found
        if not name.startswith(("makai.core.", "makai.harness.contract."))
        if name != "msgspec" and name.split(".")[0] not in sys.stdlib_module_names
    }

    assert foreign == set()
    assert {name.split(".")[0] for name in found} & NO_IO == set()
    assert len(list(CONTRACT.glob("*.py"))) >= 8


@pytest.mark.req("DM-PROV-002")
def test_importing_the_public_names_loads_no_driver_and_no_event_loop() -> None:
    program = (
        "import sys, makai.harness\n"
        "print('LOADED', *sys.modules)\n"
        "from makai.harness import Spec, Harness, Handle, encode_event, HarnessManifest, Result, OneShotRequest\n"
        "print('LOADED', *sys.modules)\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    package, contract = (set(line.split()) for line in finished.stdout.splitlines())

    assert {name for name in package if name.startswith("makai.")} <= {
        "makai.core",
        "makai.core.version",
        "makai.harness",
    }
    allowed = ("makai.core", "makai.harness.contract")
    assert {name for name in contract if name.startswith("makai.") and not name.startswith(allowed)} == {
        "makai.harness"
    }
    assert contract & {"asyncio", "aiohttp", "subprocess", "socket", "ssl"} == set()


def test_every_public_name_can_be_imported_and_the_list_is_sorted() -> None:
    names = makai.harness.__all__

    assert names == sorted(names, key=str.casefold)
    assert [name for name in names if not hasattr(makai.harness, name)] == []
    assert set(names) <= set(dir(makai.harness))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = makai.harness.Nothing


@pytest.mark.req("DM-PROV-001", "DM-ENDP-012")
async def test_objects_satisfy_the_interfaces_by_their_shape() -> None:
    harness: Harness = PlainHarness()
    handle: Handle = await harness.spawn(Spec(prompt="p"))

    assert isinstance(harness, Harness)
    assert isinstance(handle, Handle)
    assert [event.kind async for event in handle] == ["init", "result"]
    assert not isinstance(object(), Harness)
    assert Session is Handle
    assert makai.harness.Provider is Harness


def test_a_family_is_that_of_a_manifest_of_a_harness_or_of_an_endpoint() -> None:
    harnesses = {manifest.family for manifest in makai.harness.harness_manifests()}
    endpoints = {manifest.family for manifest in makai.harness.endpoint_manifests().values()}

    assert {*harnesses, *endpoints} == set(get_args(makai.harness.Family))


@pytest.mark.req("DM-PROV-001")
@pytest.mark.parametrize("member", ["name", "capabilities", "spawn", "resume", "shutdown"])
def test_an_object_without_one_of_the_five_members_is_no_harness(member: str) -> None:
    members = {name: value for name, value in vars(PlainHarness).items() if not name.startswith("_")}
    del members[member]

    assert not isinstance(type("Without", (), members)(), Harness)


@pytest.mark.req("DM-PROV-001")
def test_the_methods_of_the_interfaces_are_async() -> None:
    for method in (Harness.spawn, Harness.resume, Harness.shutdown, Handle.inject, Handle.stop):
        assert inspect.iscoroutinefunction(method), method.__qualname__


@pytest.mark.req("DM-ENDP-012")
def test_a_harness_becomes_a_provider_by_its_manifest_alone() -> None:
    plain, provider = PlainHarness(), ManifestHarness()

    assert (isinstance(plain, HarnessProvider), isinstance(provider, HarnessProvider)) == (False, True)
    assert isinstance(provider, Harness)
    assert (ManifestHarness.spawn, ManifestHarness.resume) == (PlainHarness.spawn, PlainHarness.resume)


@pytest.mark.req("DM-PROV-005")
def test_the_five_errors_are_distinct_and_come_back_from_their_codes() -> None:
    codes = [kind.code for kind in FIVE]

    assert len(set(codes)) == 5
    assert [type(errors.error_from_code(code, "x")) for code in codes] == list(FIVE)
    assert [(a, b) for a in FIVE for b in FIVE if a is not b and issubclass(a, b)] == []


@pytest.mark.req("DM-PROV-005")
@pytest.mark.parametrize("kind", FIVE)
def test_an_error_is_recognized_after_it_was_wrapped_with_context(kind: type[errors.MakaiError]) -> None:
    error = kind("It did not work.")

    def wrapped() -> BaseException:
        try:
            try:
                raise error
            except errors.MakaiError as cause:
                raise RuntimeError("while working on issue 7") from cause
        except RuntimeError as outer:
            return ExceptionGroup("of a task group", [ValueError("other"), outer])

    assert find_error(wrapped(), kind) is error
    assert [other for other in FIVE if find_error(wrapped(), other)] == [kind]


@pytest.mark.req("DM-PROV-005")
def test_an_error_is_not_recognized_through_a_context_that_was_cut_or_loops() -> None:
    def unrelated() -> None:
        try:
            raise SpawnFailed("It did not start.")
        except SpawnFailed:
            raise RuntimeError("something else") from None

    with pytest.raises(RuntimeError) as refusal:
        unrelated()
    assert find_error(refusal.value, SpawnFailed) is None
    first, second = RuntimeError("1"), RuntimeError("2")
    first.__cause__, second.__cause__ = second, first

    assert find_error(first, SpawnFailed) is None
    assert find_error(None, SpawnFailed) is None
