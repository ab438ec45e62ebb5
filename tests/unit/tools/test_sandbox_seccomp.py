"""What the seccomp program refuses: on machines that are not this one, too."""

from __future__ import annotations

import functools
import struct

import pytest

from makai.tools.sandbox.seccomp import (
    ALLOW,
    CLONE_NEWUSER,
    FIRST_ARGUMENT,
    HAND_OVER,
    MACHINES,
    REFUSE,
    UNKNOWN_CALL,
    filter_program,
)

UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK = 1, 2, 10, 16, 17, 38, 40
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
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_without_internet_sockets_there_are_only_connected_pairs(machine: str) -> None:
    calls = MACHINES[machine]
    answer = functools.partial(decide, filter_program(machine, sockets=False), calls.audit)

    assert {answer(calls.socket, family) for family in (UNIX, INET, INET6, NETLINK, PACKET)} == {REFUSE}
    assert answer(calls.socketpair, UNIX, STREAM | CLOEXEC) == ALLOW
    assert answer(calls.socketpair, UNIX, DATAGRAM | CLOEXEC) == REFUSE
    assert answer(GETPID[machine]) == ALLOW


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_with_internet_sockets_there_are_no_others(machine: str) -> None:
    calls = MACHINES[machine]
    answer = functools.partial(decide, filter_program(machine, sockets=True), calls.audit)

    assert {answer(calls.socket, family) for family in (INET, INET6, NETLINK)} == {ALLOW}
    assert {answer(calls.socket, family) for family in (UNIX, PACKET, VSOCK, ALG)} == {REFUSE}
    assert answer(calls.socketpair, UNIX, DATAGRAM) == REFUSE
    assert answer(GETPID[machine]) == ALLOW


@pytest.mark.parametrize("sockets", [False, True])
@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_interfaces_of_the_kernel_that_programs_do_not_need_are_closed(machine: str, sockets: bool) -> None:
    calls = MACHINES[machine]
    answer = functools.partial(decide, filter_program(machine, sockets=sockets), calls.audit)
    io_uring, pidfd_getfd, clone3 = 425, 438, 435

    assert {answer(call) for call in (*calls.refused, io_uring, pidfd_getfd)} == {REFUSE}
    assert len(set(calls.refused)) == len(calls.refused)
    assert answer(clone3) == UNKNOWN_CALL
    assert (answer(calls.clone, 0x11), answer(calls.clone, CLONE_NEWUSER | 0x11)) == (ALLOW, REFUSE)
    type_into_terminal, window_size = 0x5412, 0x5413
    assert answer(calls.ioctl, 0, window_size) == ALLOW
    assert {answer(calls.ioctl, 0, type_into_terminal | high) for high in (0, 1 << 32)} == {REFUSE}


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_calls_in_the_manner_of_another_machine_are_refused(machine: str) -> None:
    calls = MACHINES[machine]
    program = filter_program(machine, sockets=True)

    assert decide(program, 0x40000003, GETPID[machine]) == REFUSE  # 32-bit x86
    assert decide(program, calls.audit, 0x40000000 | calls.socket, INET) == REFUSE  # x32


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_behind_a_proxy_there_is_only_tcp_and_connect_is_handed_over(machine: str) -> None:
    calls = MACHINES[machine]
    answer = functools.partial(decide, filter_program(machine, sockets=False, proxied=True), calls.audit)
    raw, tcp, udp, sctp, mptcp, fast_open = 3, 6, 17, 132, 262, 0x20000000

    assert {answer(calls.connect, descriptor) for descriptor in (0, 3)} == {HAND_OVER}
    for family in (INET, INET6):
        assert {answer(calls.socket, family, STREAM | CLOEXEC, kind) for kind in (0, tcp)} == {ALLOW}
        assert {answer(calls.socket, family, STREAM, kind) for kind in (udp, sctp, mptcp)} == {REFUSE}
        assert {answer(calls.socket, family, kind | CLOEXEC) for kind in (DATAGRAM, raw, 5)} == {REFUSE}
    assert {answer(calls.socket, family, STREAM) for family in (UNIX, NETLINK, PACKET, VSOCK, ALG)} == {REFUSE}
    assert {answer(call, 3) for call in calls.opening} == {REFUSE}
    for call, offset in calls.sending:
        before = (offset - FIRST_ARGUMENT) // 8
        assert answer(call, *(0,) * before, 0x4000) == ALLOW
        assert answer(call, *(0,) * before, fast_open | 0x4000) == REFUSE
    assert answer(calls.socketpair, UNIX, STREAM) == ALLOW
    assert answer(GETPID[machine]) == ALLOW
    assert {answer(call) for call in calls.refused} == {REFUSE}
