"""Commands in a sandbox with named hosts, and a server that they may reach: packages, a repository and a page."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import trustme

from makai.aio.child_process import ChildProcess
from makai.tools.commands import start_proxied
from makai.tools.sandbox.detect import Detection
from makai.tools.sandbox.policy import SandboxPolicy
from makai.tools.sandbox.proxy import EgressProxy

HOST = "packages.example"
DEADLINE_S = 90.0


async def resolve_to_this_machine(name: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    output: str
    exit_code: int
    notice: str


class ProxiedCommands:
    """Runs commands in `root`, which may reach `hosts`; every name leads to this machine. With `gone`, a folder that
    the sandbox needs, and that is removed before it starts."""

    def __init__(
        self, sandbox: Detection, root: Path, environ: Mapping[str, str] | None = None, *, gone: Path | None = None
    ) -> None:
        self._gone = gone
        for name in ("workspace/work", "tmp", "home"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self._sandbox = sandbox
        self._root = root
        self._environ = {"PATH": os.environ["PATH"], "HOME": str(root / "workspace/work"), "LC_ALL": "C.UTF-8"}
        self._environ |= environ or {}

    @asynccontextmanager
    async def started(self, script: str, *hosts: str) -> AsyncIterator[tuple[ChildProcess, EgressProxy]]:
        workspace = str(self._root / "workspace")
        policy = SandboxPolicy(
            level="workspace-write",
            roots=(workspace,),
            hosts=hosts,
            private_tmp=str(self._root / "tmp"),
            extra_writable=(str(self._gone),) if self._gone else (),
        )
        async with AsyncExitStack() as stack:
            proxy = EgressProxy(hosts, resolve=resolve_to_this_machine, may_be_reached=lambda address: True)
            stack.push_async_callback(proxy.close)
            stack.enter_context(self._sandbox.holding(policy))
            argv = self._sandbox.wrap(policy, ["bash", "-c", script])
            directory = os.open(f"{workspace}/work", os.O_RDONLY | os.O_DIRECTORY)
            try:
                child = await start_proxied(argv, proxy, environ=self._environ, directory=directory)
            finally:
                os.close(directory)
            stack.push_async_callback(child.stop)
            yield child, proxy

    async def run(self, script: str, *hosts: str) -> Ran:
        async with asyncio.timeout(DEADLINE_S), self.started(script, *hosts) as (child, proxy):
            output = b""
            while chunk := await child.read():
                output += chunk
            code = await child.wait()
            return Ran(output=output.decode("utf-8", "replace"), exit_code=code, notice=proxy.notice())


@contextmanager
def package_server(folder: Path, *, tls: bool) -> Iterator[tuple[int, dict[str, str]]]:
    """A server of static files: its port, and the environment that makes programs trust it."""
    ca = trustme.CA()
    certificate = folder / "ca.pem"
    ca.cert_pem.write_to_path(str(certificate))
    www = folder / "www"
    www.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(www))) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            ca.issue_cert(HOST).configure_cert(context)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        port = int(server.server_address[1])
        _fill(www, f"{'https' if tls else 'http'}://{HOST}:{port}")
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        names = (
            "SSL_CERT_FILE",
            "PIP_CERT",
            "NODE_EXTRA_CA_CERTS",
            "GIT_SSL_CAINFO",
            "CURL_CA_BUNDLE",
            "npm_config_cafile",
        )
        try:
            yield port, dict.fromkeys(names, str(certificate))
        finally:
            server.shutdown()
            serving.join()


def _fill(www: Path, base: str) -> None:
    (www / "page").write_text("hello from the page\n")
    simple = www / "simple/demo"
    simple.mkdir(parents=True)
    (simple / "index.html").write_text('<a href="demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>')
    with zipfile.ZipFile(simple / "demo-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("demo.py", "answer = 42\n")
        wheel.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        wheel.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("demo-1.0.dist-info/RECORD", "")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        described = json.dumps({"name": "demo", "version": "1.0.0"}).encode()
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(described)
        archive.addfile(entry, io.BytesIO(described))
    (www / "demo-1.0.0.tgz").write_bytes(packed.getvalue())
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()}"
    dist = {"tarball": f"{base}/demo-1.0.0.tgz", "integrity": integrity}
    versions = {"1.0.0": {"name": "demo", "version": "1.0.0", "dist": dist}}
    (www / "demo").write_text(json.dumps({"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": versions}))
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-C", str(www)]
    subprocess.run([*git, "init", "-q", "repo"], check=True, timeout=30)
    (www / "repo/file").write_text("from the repository\n")
    for arguments in (["add", "."], ["commit", "-qm", "first"], ["update-server-info"]):
        subprocess.run([*git[:-1], str(www / "repo"), *arguments], check=True, timeout=30)
