"""Liveness of the two processes without which a driver gets nowhere: the cluster's GCS, and the raylet of its own node.

Ray ends a driver whose GCS has been gone for a minute with the exit code of a finding. Without its raylet, a driver
waits for workers that nobody starts. Who asks here first can close its campaign and say why.
"""

import socket
import time
from pathlib import Path
from typing import Any

from cluster.dispatch.host import PoolError

PATIENCE_SECONDS = 10.0
# Ray would end the process a minute after its GCS was gone, and leaving such a Ray takes half of that.
RAY_SETTINGS = {"RAY_gcs_rpc_server_reconnect_timeout_s": "180"}
INTERVAL_SECONDS = 1.0
CONNECT_SECONDS = 2.0


class Liveness:
    """Sockets of a cluster's GCS and of this node's raylet, asked for an answer."""

    def __init__(self, ray: Any) -> None:
        context = ray.get_runtime_context()
        host, _, port = context.gcs_address.rpartition(":")
        own = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        self._gcs = host.strip("[]"), int(port)
        self._raylet = own["RayletSocketName"]
        self._next = 0.0

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
        while silent := self._silent():
            if time.monotonic() - begun > PATIENCE_SECONDS:
                logs = Path(self._raylet).parents[1] / "logs"
                raise PoolError(
                    f"Ray's {' and '.join(silent)}: no answer for {PATIENCE_SECONDS:g} s; logs are in {logs}"
                )
            time.sleep(INTERVAL_SECONDS)

    def _silent(self) -> list[str]:
        """Describe those of the two that do not answer."""
        found = []
        try:
            socket.create_connection(self._gcs, timeout=CONNECT_SECONDS).close()
        except OSError as error:
            host, port = self._gcs
            found.append(f"GCS at {host}:{port} ({error.strerror or error})")
        with socket.socket(socket.AF_UNIX) as raylet:
            raylet.settimeout(CONNECT_SECONDS)
            try:
                raylet.connect(self._raylet)
            except OSError as error:
                found.append(f"raylet of this node ({error.strerror or error})")
        return found
