"""Reachability check of a Ray cluster, before this process joins it.

It checks address, socket, protocol and token within seconds.

Ray itself would retry for minutes, and print every refused RPC.
"""

import os
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path

from cluster.dispatch.host import ReachError

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
# With less, a library that gets no memory or no thread aborts the driver of a private Ray.
MEMORY_MIN = 1_200_000 << 10
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})")
# This runs in a process of its own: its output is captured, and it can be killed if a server never answers.
_ASK = """
import sys
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1]).cluster_id
except Exception as error:
    print(type(error).__name__, str(error).partition(chr(10))[0], sep=chr(10))
"""


def check_address(address: str) -> None:
    """Raise unless an address is `local`, `auto` (Ray searches), or HOST:PORT.

    Raises:
        ReachError: the address has another form.
    """
    match = _ADDRESS.fullmatch(address)
    if address not in ("local", "auto") and not (match and 0 < int(match["port"]) < 1 << 16):
        raise ReachError(f"Ray at {address}: no such address; expected local, off or HOST:PORT with a port to 65535")


def check_memory() -> None:
    """Check that the memory limit of this process allows a Ray cluster of its own.

    Raises:
        ReachError: the limit is too low.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < MEMORY_MIN:
        seen = f"the memory of a process is limited to {limit >> 10:,} kB here (ulimit -v)"
        raise ReachError(f"{seen}; a private Ray needs at least {MEMORY_MIN >> 10:,} kB, --ray off less")


def reach(address: str) -> None:
    """Return once the Ray cluster at an address has accepted the current token.

    `local` needs no check.

    Raises:
        ReachError: nothing listens there, it is no Ray, or it refuses the token.
    """
    check_address(address)
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise ReachError(f"Ray at {address}: {why}; name the head's HOST:PORT, or --ray local") from error
    name, text = _ask(address)
    if name == "AuthenticationError":
        raise ReachError(f"Ray at {address}: {_token_problem(text)}")
    if name:
        raise ReachError(f"Ray at {address}: something listens, but no Ray of this version answers ({name}: {text})")


def _ask(address: str) -> tuple[str, str]:
    """Return type and message of the error that a Ray client gets; "" and "" without one."""
    asking = [sys.executable, "-c", _ASK, address]
    try:
        done = subprocess.run(asking, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "TimeoutError", f"no answer within {ANSWER_SECONDS:g} s"
    name, _, text = done.stdout.strip().partition("\n")
    return name, text


def _token_problem(text: str) -> str:
    """Describe why Ray refuses this process's token, and where the token comes from."""
    mode = os.environ.get("RAY_AUTH_MODE", "not set")
    wanted = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file with the cluster's token (mode 0600)"
    if mode != "token":
        return f"it wants a token, and RAY_AUTH_MODE is {mode}; {wanted}"
    if os.environ.get("RAY_AUTH_TOKEN"):
        return f"it refuses the token in RAY_AUTH_TOKEN; {wanted}"
    path = token_file()
    if not path.is_file():
        return f"there is no token in {path}; {wanted}"
    if not os.access(path, os.R_OK) or not path.stat().st_size:
        return f"{path} cannot be read or is empty; {wanted}"
    return f"it refuses the token in {path}; {wanted}" if "InvalidAuthToken" in text else f"{text}; {wanted}"


def token_file() -> Path:
    """Return the file from which Ray reads a token: RAY_AUTH_TOKEN_PATH, else the default."""
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
