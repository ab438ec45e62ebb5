"""The process that runs llama.cpp: started by `makai.providers.local.server`, one per model. It reads the API key as
the first line of stdin and writes `{"ready": true, "port": N}` to stdout once the server answers on loopback. It ends
on SIGTERM, when its parent dies, and when its stdin closes. It imports nothing of makai and is run by its path, so that
a crash, OpenMP and 100 MB of native code stay here."""

from __future__ import annotations

import argparse
import ctypes
import http.client
import json
import os
import signal
import sys
import threading
from typing import Any, NoReturn
from urllib.parse import urlsplit

_PR_SET_PDEATHSIG = 1
_WARNINGS_AND_ERRORS = 2
"""llama.cpp's log level that names problems but no prompt and no request."""
_PROMPT_CACHE_MIB = 128
"""Room for the states of earlier conversations. The default would let a 98 MB model grow by 8 GB."""


def main() -> NoReturn:
    arguments = _arguments()
    _die_with_parent()
    # llama.cpp may print; only our one line may reach the real stdout.
    ready_line = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    key = sys.stdin.readline().strip()
    threading.Thread(target=_exit_when_stdin_closes, daemon=True).start()
    try:
        server = _start(arguments, key)
    except RuntimeError as error:
        # llama.cpp has already said why; a traceback would only push that out of the log's last lines.
        sys.exit(f"llama.cpp: {error}")
    port = _answering_port(server.listening_address)
    print(json.dumps({"ready": True, "port": port}), file=ready_line, flush=True)
    threading.Event().wait()
    raise AssertionError("unreachable: only a signal or the closing of stdin ends this process")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="path of the GGUF file")
    parser.add_argument("--alias", required=True, help="the model id to serve it under")
    parser.add_argument("--port", type=int, default=0, help="0 lets the kernel choose, which cannot collide")
    parser.add_argument("--context", type=int, required=True, help="context window in tokens")
    parser.add_argument("--threads", type=int, required=True, help="threads that write the answer")
    parser.add_argument("--batch-threads", type=int, required=True, help="threads that read the prompt")
    return parser.parse_args()


def _start(arguments: argparse.Namespace, key: str) -> Any:
    """Load the model and listen. Returns when both are done; raises when either fails."""
    # OpenMP reads these once, when its library is loaded. Its threads spin while they wait by default, which on
    # busy cores makes two threads several times slower than one.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ["OMP_NUM_THREADS"] = str(arguments.batch_threads)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.model_alias = {arguments.alias}
    params.n_ctx = arguments.context
    params.n_parallel = 1
    params.cpuparams.n_threads = arguments.threads
    params.cpuparams_batch.n_threads = arguments.batch_threads
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.warmup = False
    params.hostnames = ["127.0.0.1"]
    params.port = arguments.port
    params.api_keys = [key] if key else []
    # No page of any origin has business here; the key would stop it, this says so earlier.
    params.cors_origins = "null"
    params.cors_origins_explicit = True
    params.cors_credentials = False
    params.ui = False
    params.endpoint_slots = False
    params.offline = True
    params.verbosity = _WARNINGS_AND_ERRORS
    return xllamacpp.Server(params)


def _answering_port(address: str) -> int:
    """The port of `address`, after it has really answered."""
    port = urlsplit(address).port
    if port is None:
        raise RuntimeError(f"llama.cpp reports no port in {address!r}")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 200:
        raise RuntimeError(f"llama.cpp answers its health check with {status}")
    return port


def _die_with_parent() -> None:
    """Ask Linux to kill us with the thread that started us; elsewhere the closing of stdin does it alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _exit_when_stdin_closes() -> None:
    """The parent holds the other end and writes nothing more; end of file means it is gone."""
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
