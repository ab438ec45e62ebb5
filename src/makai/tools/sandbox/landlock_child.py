"""Confines itself by Landlock and seccomp, then becomes another program: `--hidden PATH ... -- COMMAND...`.

It runs in a fork of the launcher.

Landlock only ever allows, and what it allows for a folder it allows for all that is in it. To leave something out,
everything around it is allowed instead (`allowed_around`).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterator, Sequence

from makai.tools.sandbox import proxy_channel, seccomp
from makai.tools.sandbox.limits import limit_processes

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_QUESTION = 1

# linux/landlock.h
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
EVERY_CHANGE_IN_FOLDERS = sum(1 << bit for bit in range(4, 14))
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = WRITE_FILE | TRUNCATE | EVERY_CHANGE_IN_FOLDERS
FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
EVERY_TCP, EVERY_SCOPE = 1 | 2, 1 | 2

DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
SIGKILL = 9
LAST_CAPABILITY = 63

libc = ctypes.CDLL(None, use_errno=True)


class Orders:
    """The options of the command line. Each may be given many times."""

    def __init__(self, arguments: Sequence[str]) -> None:
        end = arguments.index("--")
        self._options = list(zip(arguments[:end:2], arguments[1:end:2], strict=True))
        self.command = list(arguments[end + 1 :])

    def all(self, name: str) -> list[str]:
        return [value for option, value in self._options if option == f"--{name}"]

    def one(self, name: str) -> str:
        return next(iter(self.all(name)), "")


def landlock_abi() -> int:
    """The version of Landlock that the kernel speaks; 0 when it is missing or switched off."""
    return max(0, int(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_QUESTION))))


def confine(orders: Orders) -> None:
    """Everything, in an order in which each step may still be done."""
    network, is_proxied = orders.one("network") == "on", orders.one("network") == "proxy"
    limit_processes(int(orders.one("process-limit")))
    if os.getsid(0) != os.getpid():
        os.setsid()
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    restrict_files(orders, network=network)
    drop_capabilities()
    program = seccomp.filter_program(os.uname().machine, sockets=network, proxied=is_proxied)
    listener = seccomp.install(program, listener=is_proxied)
    if is_proxied:
        proxy_channel.send(int(orders.one("channel")), proxy_channel.CONNECT_CALLS, listener)


def restrict_files(orders: Orders, *, network: bool) -> None:
    """Landlock: files, TCP, signals and abstract unix sockets, as far as the kernel knows them."""
    abi = landlock_abi()
    files = READ | WRITE | (IOCTL_DEV if abi >= 5 else 0)
    attributes = struct.pack("QQQ", files, 0 if network or abi < 4 else EVERY_TCP, EVERY_SCOPE if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _checked(libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)))
    hidden = orders.all("hidden")
    for path in (*allowed_around("/", [*hidden, *orders.all("unseen")]), *orders.all("readable")):
        _allow(ruleset, path, READ)
    for root in orders.all("root"):
        for path in allowed_around(root, hidden):
            _allow(ruleset, path, READ)
    for folder in orders.all("writable"):
        for path in allowed_around(folder, [*hidden, *orders.all("protected")]):
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
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # no folder, or not for this user
    for entry in entries:
        if not entry.is_symlink():  # what it leads to is allowed, or not, where it is
            yield from allowed_around(entry.path, inside)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # not there, or not for this user
    try:
        rule = struct.pack("=Qi", access if stat.S_ISDIR(os.fstat(fd).st_mode) else access & FOR_FILES, fd)
        _checked(libc.syscall(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0)))
    finally:
        os.close(fd)


def drop_capabilities() -> None:
    """Root without its capabilities; with no_new_privs no program it starts gets them back."""
    for capability in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails without capabilities, and for unknown ones
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    _checked(libc.capset(header, bytes(24)))


def _prctl(option: int, argument: int) -> None:
    _checked(libc.prctl(option, ctypes.c_ulong(argument), None, None, None))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def main(arguments: Sequence[str]) -> int:
    """Exit code 126 and a line on stderr when it cannot confine: the command is then not run."""
    orders = Orders(arguments)
    try:
        confine(orders)
    except OSError as error:
        os.write(2, f"makai: the Landlock sandbox could not be set up: {error}\n".encode())
        return 126
    for variable in orders.all("environ"):
        name, _, value = variable.partition("=")
        os.environ[name] = value
    try:
        os.execvp(orders.command[0], orders.command)
    except OSError as error:
        os.write(2, f"makai: {orders.command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        return 127 if isinstance(error, FileNotFoundError) else 126
