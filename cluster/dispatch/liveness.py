"""Liveness checks of the Ray processes that a driver needs: GCS, and its node's raylet.

If the GCS is gone for a minute, Ray ends the driver with the exit code of a finding. Without its raylet, a driver waits
for workers that nobody starts; if the raylet hangs, it waits forever. A check before that lets a command close its
campaign and report the cause.
"""

import socket
import time
from pathlib import Path
from typing import Any

from cluster.dispatch.host import PoolError

PATIENCE_SECONDS = 10.0
# Ray ends a process one minute after its GCS is gone; this delays it until all results are written.
RAY_SETTINGS = {"RAY_gcs_rpc_server_reconnect_timeout_s": "180"}
INTERVAL_SECONDS = 1.0
ANSWER_SECONDS = 2.0
# The start of an HTTP/2 connection, the protocol of gRPC: a live server answers with its settings, or hangs up if it
# requires TLS. A plain connection proves nothing, since the system accepts it even for a process that hangs.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


class Liveness:
    """Checks of a cluster's GCS and of this node's raylet.

    `is_lost` is set once one of them does not answer.
    """

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
        """Check that GCS and raylet answer, at most once per second."""
        if time.monotonic() >= self._next:
            self.check()
            checked = time.monotonic()
            assert checked >= self._next, f"checked at {checked}, due at {self._next}"
            self._next = checked + INTERVAL_SECONDS

    def check(self) -> None:
        """Wait until both servers, GCS and raylet, have answered.

        Raises:
            PoolError: one of them is silent for longer than a busy machine explains.
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
    """Return why a gRPC server does not answer, or an empty string."""
    try:
        with socket.create_connection(server, timeout=ANSWER_SECONDS) as connection:
            connection.sendall(_GREETING)
            connection.recv(1)
    except ConnectionResetError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""
