"""Owns the sessions of a MAKAI_HOME for a program: alone, when they are in a file there, or as a node of a cluster when
they are in PostgreSQL. `session_router` attaches to the process that does, when it is another one."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from makai.agent.host import Models
from makai.core.config import ClusterConfig, Config
from makai.core.errors import InvalidRequest
from makai.core.observation import NO_OBSERVER, Observer
from makai.providers.logins import CONFIG_FILE, read_config
from makai.sessions.load import health_of
from makai.sessions.log.opening import is_postgres, join_cluster, store_of
from makai.sessions.owner import OwnedSessions

if TYPE_CHECKING:
    from makai.core.secret import Secret
    from makai.server.cluster_sessions import ClusterSessions

_ANY_HOST = frozenset({"0.0.0.0", "::"})


async def own_sessions(
    home: Path,
    models: Models,
    *,
    durable: bool = False,
    config: Config | None = None,
    environ: Mapping[str, str] | None = None,
    on_process: Callable[[str, int], None] | None = None,
    observer: Observer = NO_OBSERVER,
) -> OwnedSessions | ClusterSessions:
    """Raises `HomeInUse` while another process owns the sessions. A `durable` owner resumes the runs of dead owners at
    once, others when a session is first used. `config` is the user's, which is read when it is not given; `environ` and
    `on_process` are those of `OwnedSessions`."""
    found = await asyncio.to_thread(read_config, home / CONFIG_FILE) if config is None else config
    found = msgspec.structs.replace(found, store=store_of(home, found))
    if is_postgres(found.store):
        return await _join(home, models, durable, found, environ, on_process, observer)
    return await OwnedSessions.open(
        home,
        models,
        store=found.store,
        recover_all=durable,
        environ=environ,
        on_process=on_process,
        observer=observer,
    )


async def _join(
    home: Path,
    models: Models,
    durable: bool,
    config: Config,
    environ: Mapping[str, str] | None,
    on_process: Callable[[str, int], None] | None,
    observer: Observer,
) -> ClusterSessions:
    from makai.server.cluster_links import ClusterSecrets, NodeLinks, NodeSocket
    from makai.server.cluster_relay import RequestRelay
    from makai.server.cluster_sessions import ClusterSessions
    from makai.transports.node_tls import host_and_port

    cluster = config.cluster
    address = _advertised(cluster)
    key = await asyncio.to_thread(_key, os.environ if environ is None else environ, cluster)
    secrets = None if key is None else await asyncio.to_thread(ClusterSecrets.of, key)
    name = cluster.name or socket.gethostname()
    log = await join_cluster(
        home,
        config.store,
        name=name,
        address=address,
        labels=cluster.labels or (name,),
        lease_s=cluster.lease_seconds,
    )
    try:
        local = await OwnedSessions.open(
            home, models, log=log, environ=environ, on_process=on_process, observer=observer
        )
    except BaseException:
        await log.close()
        raise
    links = NodeLinks(lambda node_id: log.part_of(node_id).find_node(node_id), secrets)
    sessions = ClusterSessions(local, log, links, RequestRelay(log, key), cluster.lease_seconds)
    try:
        link_socket = None
        if cluster.listen and secrets is not None:
            link_socket = NodeSocket(local, secrets, *host_and_port(cluster.listen, "`listen` in [cluster]"))
        sessions.start(link_socket, durable=durable)
        log.on_lease_lost(lambda concerns: observer.lease_lost())
        observer.store_joined(lambda: health_of(log, log.taken_over))
        if durable:
            local.start_index()
    except BaseException:
        await sessions.close()
        raise
    return sessions


def _advertised(cluster: ClusterConfig) -> str:
    """The address that other nodes connect to; empty when they cannot."""
    from makai.transports.node_tls import host_and_port

    if not cluster.listen:
        return ""
    host, port = host_and_port(cluster.listen, "`listen` in [cluster]")
    if cluster.advertise:
        host_and_port(cluster.advertise, "`advertise` in [cluster]")
        return cluster.advertise
    if host in _ANY_HOST or port == 0:
        raise InvalidRequest(
            f"Other nodes cannot connect to {cluster.listen}.",
            hint="Set `advertise` in [cluster] of config.toml to the host and port by which they reach this machine.",
        )
    return cluster.listen


def _key(environ: Mapping[str, str], cluster: ClusterConfig) -> Secret | None:
    """The cluster key. A process that listens for no other node may be without one."""
    from makai.auth.cluster_key import KEY_VARIABLE, load_cluster_key

    is_needed = cluster.listen or cluster.key_file or environ.get(KEY_VARIABLE)
    return load_cluster_key(environ, cluster) if is_needed else None
