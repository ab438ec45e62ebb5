"""Addresses that a model's requests may reach, by number and by the routes of this machine."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from makai.tools.addresses import is_own, is_public, may_be_reached

NAMESPACE = """
import asyncio, ctypes, fcntl, os, socket, struct, sys
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
if os.geteuid() and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) or not os.geteuid() and libc.unshare(CLONE_NEWNET):
    sys.exit("no network namespace: " + os.strerror(ctypes.get_errno()))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    address = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, socket.inet_aton("93.184.216.34"))
    fcntl.ioctl(control, 0x8916, address)  # SIOCSIFADDR
    fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
    six = socket.inet_pton(socket.AF_INET6, "2606:2800:220:1::5")
    fcntl.ioctl(control, 0x8916, six + struct.pack("=Ii", 128, socket.if_nametoindex("lo")))

from aiohttp import web
from makai.tools.addresses import may_be_reached
from makai.tools.fetch import FetchTool

async def main():
    asked = []
    async def answer(request):
        asked.append(request.host)
        return web.Response(text="secret")
    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "93.184.216.34", 8080).start()
    async def resolve(host, port):
        return ["93.184.216.34"]
    for host in ("93.184.216.34", "[::ffff:93.184.216.34]", "[64:ff9b::5db8:d822]", "example.com"):
        outcome = await FetchTool(resolve=resolve).run({"url": f"http://{host}:8080/"}, None)
        assert outcome.is_error, host
    assert not asked, asked
    own = ("93.184.216.34", "2606:2800:220:1::5", "::ffff:93.184.216.34", "64:ff9b::5db8:d822")
    print([may_be_reached(one) for one in own], may_be_reached("8.8.8.8"), may_be_reached("2606:2800:220:1::6"))
    await runner.cleanup()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "address",
    [
        *("93.184.216.34", "8.8.8.8", "192.0.1.1", "198.20.0.1", "223.255.255.255"),
        *("2606:4700:4700::1111", "2a00:1450:4001::1", "2001:200::1", "::ffff:8.8.8.8", "64:ff9b::808:808"),
    ],
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)
    assert may_be_reached(address)


@pytest.mark.proof("L7")
@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200"),
        *("0.0.0.0", "224.0.0.1", "239.255.255.250", "255.255.255.255", "192.0.0.192", "198.18.0.1", "168.63.129.16"),
        *("192.88.99.1", "240.0.0.1", "203.0.113.9", "192.0.0.9"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "ff02::1", "ff0e::1", "2001:db8::1", "fec0::1"),
        *("2606:4700:4700::1111%eth0", "3fff::1", "5f00::1", "4000::1", "100::1", "::ffff:10.0.0.1", "::10.0.0.1"),
        *("64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "2002:a00:1::", "2002:7f00:1::", "2002:808:808::", "2001:0:1::1"),
        *("64:ff9b:1::", "64:ff9b:1::a00:1", "64:ff9b:1:ffff:ffff:ffff:7f00:1", "64:ff9b:1:a9fe:a9:fe00::"),
        *("64:ff9b:1::808:808", "64:ff9b:2::1", "::8.8.8.8", "::ffff:0:127.0.0.1", "2001:20::1", "2001:1::1"),
        *("2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:127.0.0.1", "2606:4700::5efe:8.8.8.8"),
        *("", "localhost", "1", "127.1", "8.8.8.8 ", "8.8.8.8\n", "08.8.8.8", "[::1]"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)
    assert not may_be_reached(address)


def test_the_kernel_says_which_addresses_are_this_machine() -> None:
    assert [is_own(each) for each in ("127.0.0.1", "127.3.2.1", "::1", "8.8.8.8", "2606:4700::1111")] == [
        *(True, True, True, False, False)
    ]


def test_without_route_netlink_the_question_is_whether_an_address_can_be_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_NETLINK")

    assert [is_own(each) for each in ("127.0.0.1", "::1", "8.8.8.8")] == [True, True, False]


def test_public_addresses_of_an_interface_are_this_machine() -> None:
    """In a network namespace whose loopback interface has public addresses, with a server on one of them."""
    done = subprocess.run([sys.executable, "-c", NAMESPACE], capture_output=True, text=True, timeout=60)

    if done.stderr.startswith("no network namespace"):
        pytest.skip(done.stderr)
    assert (done.stderr, done.stdout) == ("", "[False, False, False, False] True True\n")
