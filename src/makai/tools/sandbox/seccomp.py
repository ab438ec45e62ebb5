"""The system calls that no confined process may make, as a seccomp program for both sandboxes.

It closes what mounts, namespaces and Landlock leave open: the user's keyrings, interfaces of the kernel with a history
of holes that ordinary programs do not use, and sockets. What is refused answers "not permitted", as without privilege.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct
from typing import Final, NamedTuple, TypeAlias

_Rule: TypeAlias = tuple[int, int, tuple[str, str] | None]


class _Machine(NamedTuple):
    """The numbers of one architecture (linux/audit.h and its system call table)."""

    audit: int
    socket: int
    socketpair: int
    clone: int
    ioctl: int
    connect: int
    opening: tuple[int, int]
    """bind, listen: what opens a socket to others."""
    sending: tuple[tuple[int, int], ...]
    """sendto, sendmsg, sendmmsg, each with the offset of its flags."""
    seccomp: int
    refused: tuple[int, ...]


SYSCALL, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT, THIRD_ARGUMENT, FOURTH_ARGUMENT = 0, 4, 16, 24, 32, 40
"""Offsets in struct seccomp_data; of arguments, those of the lower half."""

# From Linux 5 on, new calls have the same number everywhere.
_REFUSED_EVERYWHERE: Final = (
    *(425, 426, 427),  # io_uring_setup, io_uring_enter, io_uring_register: they do what other calls are refused
    *(428, 429, 430, 431, 432, 433, 442),  # open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr
    *(438, 440, 443, 450),  # pidfd_getfd, process_madvise, quotactl_fd, set_mempolicy_home_node
    *(457, 458, 467),  # statmount, listmount, open_tree_attr
    *(459, 460, 461),  # lsm_get_self_attr, lsm_set_self_attr, lsm_list_modules
)
_FIRST_UNKNOWN: Final = 470
"""Calls from here on are newer than these lists (Linux 6.17). They do not exist for a confined process."""
_CLONE3: Final = 435

MACHINES: Final = {
    "x86_64": _Machine(
        audit=0xC000003E,
        socket=41,
        socketpair=53,
        clone=56,
        ioctl=16,
        connect=42,
        opening=(49, 50),
        sending=((44, FOURTH_ARGUMENT), (46, THIRD_ARGUMENT), (307, FOURTH_ARGUMENT)),
        seccomp=317,
        refused=(
            *(248, 249, 250),  # add_key, request_key, keyctl
            *(101, 310, 311, 312),  # ptrace, process_vm_readv, process_vm_writev, kcmp
            *(298, 321, 323, 300),  # perf_event_open, bpf, userfaultfd, fanotify_init
            *(237, 238, 239, 256, 279),  # mbind, set_mempolicy, get_mempolicy, migrate_pages, move_pages
            *(170, 171),  # sethostname, setdomainname
            *(
                165,
                166,
                155,
                161,
                272,
                308,
                304,
            ),  # mount, umount2, pivot_root, chroot, unshare, setns, open_by_handle_at
            *(174, 175, 176, 177, 178, 313, 246, 320),  # modules, kexec_load, kexec_file_load
            *(159, 164, 227, 305),  # adjtimex, settimeofday, clock_settime, clock_adjtime
            *(
                103,
                134,
                135,
                136,
                139,
                153,
                156,
                163,
            ),  # syslog, uselib, personality, ustat, sysfs, vhangup, sysctl, acct
            *(167, 168, 169, 172, 173, 179, 180, 212),  # swapon, swapoff, reboot, iopl, ioperm, quotactl, nfs, dcookie
        ),
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        socket=198,
        socketpair=199,
        clone=220,
        ioctl=29,
        connect=203,
        opening=(200, 201),
        sending=((206, FOURTH_ARGUMENT), (211, THIRD_ARGUMENT), (269, FOURTH_ARGUMENT)),
        seccomp=277,
        refused=(
            *(217, 218, 219),  # add_key, request_key, keyctl
            *(117, 270, 271, 272),  # ptrace, process_vm_readv, process_vm_writev, kcmp
            *(241, 280, 282, 262),  # perf_event_open, bpf, userfaultfd, fanotify_init
            *(235, 237, 236, 238, 239),  # mbind, set_mempolicy, get_mempolicy, migrate_pages, move_pages
            *(161, 162),  # sethostname, setdomainname
            *(40, 39, 41, 51, 97, 268, 265),  # mount, umount2, pivot_root, chroot, unshare, setns, open_by_handle_at
            *(105, 106, 273, 104, 294),  # modules, kexec_load, kexec_file_load
            *(171, 170, 112, 266),  # adjtimex, settimeofday, clock_settime, clock_adjtime
            *(116, 92, 58, 89),  # syslog, personality, vhangup, acct
            *(224, 225, 142, 60, 42, 18),  # swapon, swapoff, reboot, quotactl, nfsservctl, lookup_dcookie
        ),
    ),
}
X32_BIT: Final = 0x40000000
AF_INET, AF_INET6, AF_NETLINK = 2, 10, 16
SOCK_STREAM, SOCK_DGRAM, SOCKET_TYPES = 1, 2, 0xF
IPPROTO_TCP, MSG_FASTOPEN = 6, 0x20000000
CLONE_NEWUSER: Final = 0x10000000
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # type into a terminal

LOAD, AND, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, JUMP_IF_ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE, UNKNOWN_CALL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
HAND_OVER: Final = 0x7FC00000
"""SECCOMP_RET_USER_NOTIF: the call waits for an answer of the process that holds the filter's listener."""

_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_NEW_LISTENER = 1, 8


@functools.cache
def filter_program(machine: str, *, sockets: bool, proxied: bool = False) -> bytes:
    """With `sockets` those of the internet are allowed, for a process with a network or with a namespace for it. With
    `proxied` only TCP is, and no socket of it leads anywhere by itself: `connect` is handed over.

    Others never are: a unix socket that is made while a command runs could not be hidden from it. Connected pairs stay
    allowed, unless they could be used to send to some other address.
    """
    calls = MACHINES[machine]
    rules: list[_Rule] = [
        (LOAD, ARCHITECTURE, None),
        (JUMP_IF_EQUAL, calls.audit, ("next", "refuse")),
        (LOAD, SYSCALL, None),
        (JUMP_IF_AT_LEAST, X32_BIT, ("refuse", "next")),
        (JUMP_IF_AT_LEAST, _FIRST_UNKNOWN, ("unknown call", "next")),
        # Its flags are behind a pointer; libc falls back on `clone`.
        (JUMP_IF_EQUAL, _CLONE3, ("unknown call", "next")),
        *((JUMP_IF_EQUAL, call, ("refuse", "next")) for call in (*_REFUSED_EVERYWHERE, *calls.refused)),
        (JUMP_IF_EQUAL, calls.clone, ("clone", "next")),
        (JUMP_IF_EQUAL, calls.ioctl, ("ioctl", "next")),
        (JUMP_IF_EQUAL, calls.socketpair, ("pair", "next")),
    ]
    if proxied:
        rules += _proxied_rules(calls)
    elif sockets:
        rules += [(JUMP_IF_EQUAL, calls.socket, ("next", "allow")), (LOAD, FIRST_ARGUMENT, None)]
        rules += [(JUMP_IF_EQUAL, family, ("allow", "next")) for family in (AF_INET, AF_INET6)]
        rules += [(JUMP_IF_EQUAL, AF_NETLINK, ("allow", "refuse"))]
    else:
        rules += [(JUMP_IF_EQUAL, calls.socket, ("refuse", "allow"))]
    places = {"pair": len(rules)}
    rules += [(LOAD, SECOND_ARGUMENT, None), (AND, SOCKET_TYPES, None)]
    rules += [(JUMP_IF_EQUAL, SOCK_DGRAM, ("refuse", "allow"))]
    places["clone"] = len(rules)
    rules += [(LOAD, FIRST_ARGUMENT, None), (JUMP_IF_ANY_BIT, CLONE_NEWUSER, ("refuse", "allow"))]
    places["ioctl"] = len(rules)
    rules += [(LOAD, SECOND_ARGUMENT, None), (JUMP_IF_EQUAL, TIOCSTI, ("refuse", "next"))]
    rules += [(JUMP_IF_EQUAL, TIOCLINUX, ("refuse", "allow"))]
    answers = {"allow": ALLOW, "refuse": REFUSE, "unknown call": UNKNOWN_CALL, "hand over": HAND_OVER}
    for place, answer in answers.items():
        places[place] = len(rules)
        rules.append((RETURN, answer, None))

    def jump(at: int, target: str) -> int:
        if target == "next" or target.startswith("after "):
            return int(target.removeprefix("after ")) if target != "next" else 0
        return places[target] - at - 1

    return b"".join(
        struct.pack("=HBBI", code, *((jump(at, where[0]), jump(at, where[1])) if where else (0, 0)), value)
        for at, (code, value, where) in enumerate(rules)
    )


def _proxied_rules(calls: _Machine) -> list[_Rule]:
    """TCP sockets that wait for `connect`. They neither listen nor connect by sending (TCP_FASTOPEN in tcp(7)), and no
    other protocol has such sockets: SCTP would connect by sending as well."""
    rules: list[_Rule] = [(JUMP_IF_EQUAL, calls.connect, ("hand over", "next"))]
    rules += [(JUMP_IF_EQUAL, call, ("refuse", "next")) for call in calls.opening]
    for call, flags in calls.sending:
        rules += [(JUMP_IF_EQUAL, call, ("next", "after 2")), (LOAD, flags, None)]
        rules += [(JUMP_IF_ANY_BIT, MSG_FASTOPEN, ("refuse", "allow"))]
    rules += [(JUMP_IF_EQUAL, calls.socket, ("next", "allow")), (LOAD, FIRST_ARGUMENT, None)]
    rules += [(JUMP_IF_EQUAL, AF_INET, ("after 1", "next")), (JUMP_IF_EQUAL, AF_INET6, ("next", "refuse"))]
    rules += [(LOAD, SECOND_ARGUMENT, None), (AND, SOCKET_TYPES, None)]
    rules += [(JUMP_IF_EQUAL, SOCK_STREAM, ("next", "refuse")), (LOAD, THIRD_ARGUMENT, None)]
    return [*rules, (JUMP_IF_EQUAL, 0, ("allow", "next")), (JUMP_IF_EQUAL, IPPROTO_TCP, ("allow", "refuse"))]


def install(program: bytes, *, listener: bool = False) -> int:
    """For this process and all it starts. It needs no_new_privs. With `listener` the descriptor at which calls that are
    handed over arrive, else 0."""
    instructions = ctypes.create_string_buffer(program, len(program))
    pointer = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    if listener:
        call, flags = MACHINES[os.uname().machine].seccomp, ctypes.c_uint(_SECCOMP_FILTER_FLAG_NEW_LISTENER)
        result = libc.syscall(ctypes.c_long(call), ctypes.c_uint(_SECCOMP_SET_MODE_FILTER), flags, pointer)
    else:
        result = libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), pointer, None, None)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)
