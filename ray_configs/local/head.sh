#!/bin/sh
# Run one Ray node with a job server on this machine, only for this user, until Ctrl-C:
#
#   ray_configs/local/head.sh [OPTION OF `ray start`]...
#
# All sockets are on the loopback interface, and a client without a token is refused. A stopped job has 30 seconds to
# close its campaign. If another Ray runs, this one uses other ports, except for the job server, whose port is fixed.
set -eu
bin=$(dirname "$0")/../../.venv/bin
if [ -x "$bin/ray" ]; then PATH=$(cd "$bin" && pwd):$PATH; fi

export RAY_USAGE_STATS_ENABLED=0 RAY_DEDUP_LOGS=0 RAY_JOB_STOP_WAIT_TIME_S=30
# Without this Ray listens on every interface, even with a given address.
export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
export RAY_AUTH_MODE=token
# If a port is in use, Ray itself continues without it, waits for minutes, or prints a traceback.
ports=$(python3 - "$@" <<'PYTHON'
import socket
import sys

DEFAULTS = {"--port": 6379, "--ray-client-server-port": 10001, "--dashboard-port": 8265}
WORKERS = {"--min-worker-port": 10002, "--max-worker-port": 19999}


def bound(port):
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", port))
    return taken


def port_of(option, text):
    if not text.isdecimal() or int(text) > 65535:
        sys.exit(f"head.sh: {option} is {text!r}; wanted a port from 0 to 65535")
    return int(text)


words = [part for word in sys.argv[1:] for part in word.split("=", 1)]
given = {word: port_of(word, text) for word, text in zip(words, [*words[1:], ""]) if word.endswith("-port")}
low, high = ({**WORKERS, **given}[option] for option in WORKERS)
options, held = ["--dashboard-agent-listen-port=0"], {}
for option, port in {**given, **{option: port for option, port in DEFAULTS.items() if option not in given}}.items():
    if option in WORKERS or port == 0:
        continue
    if port in held and option in given:
        sys.exit(f"head.sh: {option} is {port}, and so is {held[port][0]}; give another port")
    if option in given and low and low <= port <= high and "--worker-port-list" not in words:
        sys.exit(f"head.sh: {option} is {port}; Ray takes ports {low} to {high} for its workers, give another port")
    try:
        own = bound(0 if port in held else port)
    except OSError as error:
        if option in given:
            sys.exit(f"head.sh: {option} is {port}: {error.strerror}; give another port")
        if option == "--dashboard-port":
            other = "give --dashboard-port=N, and `specstorm submit` --address http://127.0.0.1:N"
            sys.exit(f"head.sh: port {port} of the job server: {error.strerror}; {other}")
        own = bound(0)
    held[own.getsockname()[1]] = option, own
    if option not in given:
        options.append(f"{option}={own.getsockname()[1]}")
print(*options)
PYTHON
)
token=${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}
if [ -z "${RAY_AUTH_TOKEN:-}" ] && [ ! -e "$token" ]; then
    mkdir -p "$(dirname "$token")"
    (umask 077 && python3 -c 'import secrets; print(secrets.token_hex(32), end="")' > "$token")
    echo "token written to $token: give clients RAY_AUTH_MODE=token" >&2
fi
# shellcheck disable=SC2086  # options without blanks
exec ray start --head --block --disable-usage-stats --dashboard-host=127.0.0.1 $ports "$@"
