"""What the Landlock child allows, and what its seccomp program refuses: on machines that are not this one, too."""

from __future__ import annotations

import functools
import struct
from pathlib import Path

import pytest

from makai.tools.sandbox.landlock_child import ALLOW, MACHINES, REFUSE, Orders, allowed_around, socket_filter

UNIX, INET, INET6, NETLINK, PACKET = 1, 2, 10, 16, 17
STREAM, DATAGRAM, CLOEXEC = 1, 2, 0o2000000
GETPID = {"x86_64": 39, "aarch64": 172}


def decide(program: bytes, architecture: int, call: int, *arguments: int) -> int:
    """What the kernel would answer: the few instructions of classic BPF that the program is made of."""
    data = struct.pack("<iIQ6Q", call, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    instructions = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_without_a_network_there_are_no_sockets_but_connected_pairs(machine: str) -> None:
    architecture, socket_call, pair_call, refused = MACHINES[machine]
    answer = functools.partial(decide, socket_filter(machine, network=False), architecture)

    assert {answer(socket_call, family) for family in (UNIX, INET, INET6, NETLINK, PACKET)} == {REFUSE}
    assert {answer(call) for call in refused} == {REFUSE}
    assert answer(pair_call, UNIX, STREAM | CLOEXEC) == ALLOW
    assert answer(pair_call, UNIX, DATAGRAM | CLOEXEC) == REFUSE
    assert answer(GETPID[machine]) == ALLOW


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_with_a_network_there_are_internet_sockets_and_no_others(machine: str) -> None:
    architecture, socket_call, pair_call, refused = MACHINES[machine]
    answer = functools.partial(decide, socket_filter(machine, network=True), architecture)

    assert {answer(socket_call, family) for family in (INET, INET6, NETLINK)} == {ALLOW}
    assert {answer(socket_call, family) for family in (UNIX, PACKET, 40)} == {REFUSE}
    assert {answer(call) for call in refused} == {REFUSE}
    assert answer(pair_call, UNIX, DATAGRAM) == REFUSE
    assert answer(GETPID[machine]) == ALLOW


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_calls_in_the_manner_of_another_machine_are_refused(machine: str) -> None:
    architecture, socket_call, _, _ = MACHINES[machine]
    program = socket_filter(machine, network=True)

    assert decide(program, 0x40000003, GETPID[machine]) == REFUSE  # 32-bit x86
    assert decide(program, architecture, 0x40000000 | socket_call, INET) == REFUSE  # x32


def test_everything_around_what_is_excluded_is_allowed(tmp_path: Path) -> None:
    for name in ("a/keep", "a/b/secret", "a/b/keep", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/file").write_text("")
    (tmp_path / "a/link").symlink_to("b/secret")

    allowed = sorted(allowed_around(str(tmp_path), [str(tmp_path / "a/b/secret"), str(tmp_path / "a/missing")]))

    assert [str(Path(path).relative_to(tmp_path)) for path in allowed] == ["a/b/keep", "a/file", "a/keep", "c"]


def test_a_folder_is_allowed_as_a_whole_or_not_at_all_when_nothing_in_it_is_excluded(tmp_path: Path) -> None:
    assert list(allowed_around(str(tmp_path), [str(tmp_path)])) == []
    assert list(allowed_around(str(tmp_path), [f"{tmp_path}-secret", "/elsewhere"])) == [str(tmp_path)]


def test_options_end_where_the_command_begins() -> None:
    orders = Orders(["--hidden", "/a", "--tmp", "/t", "--hidden", "/b", "--", "ls", "--", "--hidden"])

    assert (orders.all("hidden"), orders.one("tmp"), orders.one("network")) == (["/a", "/b"], "/t", "")
    assert orders.command == ["ls", "--", "--hidden"]
