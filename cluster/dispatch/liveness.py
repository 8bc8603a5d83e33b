"""Liveness of the two processes without which a driver gets nowhere: the cluster's GCS, and the raylet of its own node.

Ray ends a driver whose GCS has been gone for a minute with the exit code of a finding. Without its raylet, a driver
waits for workers that nobody starts; for one that hangs it waits for ever. Who asks here first can close its campaign
and say why.
"""

import socket
import time
from pathlib import Path
from typing import Any

from cluster.dispatch.host import PoolError

PATIENCE_SECONDS = 10.0
# Ray would end the process a minute after its GCS was gone; its results are to be written by then.
RAY_SETTINGS = {"RAY_gcs_rpc_server_reconnect_timeout_s": "180"}
INTERVAL_SECONDS = 1.0
ANSWER_SECONDS = 2.0
# The beginning of a connection of HTTP/2, which gRPC speaks: its server answers with settings of its own, or where it
# wants TLS by hanging up. The system itself would take connections for a process that hangs.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


class Liveness:
    """Servers of a cluster's GCS and of this node's raylet, asked for an answer; lost is what gave none."""

    def __init__(self, ray: Any) -> None:
        context = ray.get_runtime_context()
        host, _, port = context.gcs_address.rpartition(":")
        own = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        raylet = own["NodeManagerAddress"], own["NodeManagerPort"]
        self._servers = {f"GCS at {host}:{port}": (host.strip("[]"), int(port)), "raylet of this node": raylet}
        self._logs = Path(own["RayletSocketName"]).parents[1] / "logs"
        self._next = 0.0
        self.is_lost = False

    def watch(self) -> None:
        """Check, unless that was done within the last second."""
        if time.monotonic() >= self._next:
            self.check()
            checked = time.monotonic()
            assert checked >= self._next, f"checked at {checked}, due at {self._next}"
            self._next = checked + INTERVAL_SECONDS

    def check(self) -> None:
        """Return once both answer.

        Raises:
            PoolError: one of them does not, for longer than a busy machine would be an excuse.
        """
        begun = time.monotonic()
        while silent := [f"{name} ({why})" for name, server in self._servers.items() if (why := _silence(server))]:
            if time.monotonic() - begun > PATIENCE_SECONDS:
                assert self._servers, "a Ray that is watched has servers"
                self.is_lost = True
                who = " and ".join(silent)
                raise PoolError(f"Ray's {who}: no answer for {PATIENCE_SECONDS:g} s; logs are in {self._logs}")
            time.sleep(INTERVAL_SECONDS)


def _silence(server: tuple[str, int]) -> str:
    """Return why a server of gRPC does not answer, empty if it does."""
    try:
        with socket.create_connection(server, timeout=ANSWER_SECONDS) as connection:
            connection.sendall(_GREETING)
            connection.recv(1)
    except ConnectionResetError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""
