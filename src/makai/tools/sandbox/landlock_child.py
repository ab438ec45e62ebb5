"""Confines itself by Landlock and seccomp, then becomes another program.

In: `python -I -S landlock_child.py JSON COMMAND...`, where JSON is what `landlock.py` wrote. Out: the command, confined.
It is run as a file and on its own: it must not import makai.

Landlock only ever allows, and what it allows for a folder it allows for all that is in it. To leave something out,
everything around it is allowed instead (`allowed_around`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_QUESTION = 1

# linux/landlock.h
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
REFER = 1 << 13
EVERY_CHANGE_IN_FOLDERS = sum(1 << bit for bit in range(4, 14))
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = WRITE_FILE | TRUNCATE | EVERY_CHANGE_IN_FOLDERS
FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
EVERY_TCP, EVERY_SCOPE = 1 | 2, 1 | 2

DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
SECCOMP_MODE_FILTER = 2
SIGKILL = 9
LAST_CAPABILITY = 63

# linux/audit.h and the system call tables: architecture, socket, socketpair, then what is refused outright:
# io_uring_setup (opens sockets without `socket`), add_key, request_key, keyctl (the user's keyrings)
MACHINES = {
    "x86_64": (0xC000003E, 41, 53, (425, 248, 249, 250)),
    "aarch64": (0xC00000B7, 198, 199, (425, 217, 218, 219)),
}
X32_BIT = 0x40000000
AF_INET, AF_INET6, AF_NETLINK = 2, 10, 16
SOCK_DGRAM, SOCKET_TYPES = 2, 0xF
LOAD, AND, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with EPERM
SYSCALL, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in struct seccomp_data

libc = ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """The version of Landlock that the kernel speaks; 0 when it is missing or switched off."""
    return max(0, int(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_QUESTION))))


def confine(policy: dict[str, Any]) -> None:
    """Everything, in an order in which each step may still be done."""
    if group := policy["process_group"]:
        with open(f"{group}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # a lower limit holds already
        resource.setrlimit(resource.RLIMIT_NPROC, (policy["process_limit"], policy["process_limit"]))
    with contextlib.suppress(PermissionError):  # a leader already has a session of its own
        os.setsid()
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    restrict_files(policy)
    drop_capabilities()
    install_filter(socket_filter(platform.machine(), network=policy["network"]))


def restrict_files(policy: dict[str, Any]) -> None:
    """Landlock: files, TCP, signals and abstract unix sockets, as far as the kernel knows them."""
    abi = landlock_abi()
    files = READ | WRITE | (IOCTL_DEV if abi >= 5 else 0)
    attributes = struct.pack(
        "QQQ", files, 0 if policy["network"] or abi < 4 else EVERY_TCP, EVERY_SCOPE if abi >= 6 else 0
    )
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _checked(libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)))
    for path in allowed_around("/", [*policy["hidden"], *policy["unseen"]]):
        _allow(ruleset, path, READ)
    for path in policy["readable"]:
        _allow(ruleset, path, READ)
    for root in policy["roots"]:
        for path in allowed_around(root, policy["hidden"]):
            _allow(ruleset, path, READ)
    for folder in policy["writable"]:
        for path in allowed_around(folder, [*policy["hidden"], *policy["protected"]]):
            _allow(ruleset, path, READ | WRITE)
    for name in DEVICES:
        _allow(ruleset, f"/dev/{name}", READ_FILE | READ_DIR | WRITE_FILE | (files & IOCTL_DEV))
    _checked(libc.syscall(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    os.close(ruleset)


def allowed_around(folder: str, excluded: Sequence[str]) -> Iterator[str]:
    """The fewest paths in `folder` that hold everything there is but `excluded` and the folders it is in."""
    if folder in excluded:
        return
    inside = [path for path in excluded if path.startswith(folder.rstrip("/") + "/")]
    if not inside:
        yield folder
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_symlink():  # what it leads to is allowed, or not, where it is
                yield from allowed_around(entry.path, inside)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # not there, or not for this user
    try:
        rule = struct.pack("=Qi", access if os.path.isdir(path) else access & FOR_FILES, fd)
        _checked(libc.syscall(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0)))
    finally:
        os.close(fd)


def drop_capabilities() -> None:
    """Root without its capabilities; with no_new_privs no program it starts gets them back."""
    for capability in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for whoever has none to drop, and for unknown ones
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    _checked(libc.capset(header, bytes(24)))


def socket_filter(machine: str, *, network: bool) -> bytes:
    """A seccomp program. It closes what Landlock leaves open: UDP, unix sockets, every other kind of socket.

    A pair of connected sockets stays allowed, unless it could be used to send to some other address.
    """
    architecture, socket_call, pair_call, refused_calls = MACHINES[machine]
    rules = [(LOAD, ARCHITECTURE, None), (JUMP_IF_EQUAL, architecture, ("next", "refuse"))]
    rules += [(LOAD, SYSCALL, None), (JUMP_IF_AT_LEAST, X32_BIT, ("refuse", "next"))]
    rules += [(JUMP_IF_EQUAL, call, ("refuse", "next")) for call in refused_calls]
    rules += [(JUMP_IF_EQUAL, pair_call, ("pair", "next"))]
    if network:
        rules += [(JUMP_IF_EQUAL, socket_call, ("next", "allow")), (LOAD, FIRST_ARGUMENT, None)]
        rules += [(JUMP_IF_EQUAL, family, ("allow", "next")) for family in (AF_INET, AF_INET6)]
        rules += [(JUMP_IF_EQUAL, AF_NETLINK, ("allow", "refuse"))]
    else:
        rules += [(JUMP_IF_EQUAL, socket_call, ("refuse", "allow"))]
    pair = len(rules)
    rules += [(LOAD, SECOND_ARGUMENT, None), (AND, SOCKET_TYPES, None), (JUMP_IF_EQUAL, SOCK_DGRAM, ("refuse", "allow"))]
    places = {"pair": pair, "allow": len(rules), "refuse": len(rules) + 1}
    rules += [(RETURN, ALLOW, None), (RETURN, REFUSE, None)]

    def jump(at: int, target: str) -> int:
        return 0 if target == "next" else places[target] - at - 1

    return b"".join(
        struct.pack("=HBBI", code, *((jump(at, where[0]), jump(at, where[1])) if where else (0, 0)), value)
        for at, (code, value, where) in enumerate(rules)
    )


def install_filter(program: bytes) -> None:
    """Seccomp, for this process and all it starts."""
    instructions = ctypes.create_string_buffer(program, len(program))
    pointer = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, pointer)


def _prctl(option: int, argument: int, pointer: bytes | None = None) -> None:
    _checked(libc.prctl(option, ctypes.c_ulong(argument), pointer, None, None))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def main() -> None:
    """Exit code 126 and a line on stderr when it cannot confine: the command is then not run."""
    policy = json.loads(sys.argv[1])
    try:
        confine(policy)
    except OSError as error:
        sys.exit(f"makai: the Landlock sandbox could not be set up: {error}")
    if policy["tmp"]:
        os.environ["TMPDIR"] = policy["tmp"]
    try:
        os.chdir(policy["cwd"])
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.stderr.write(f"makai: {error.filename or sys.argv[2]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
