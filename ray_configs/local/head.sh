#!/bin/sh
# One Ray node on this machine with a job server, for this user alone, until Ctrl-C:
#
#   ray_configs/local/head.sh [OPTION OF `ray start`]...
#
# Every socket is on the loopback interface, and who has no token is refused. A job that is stopped has 30 seconds to
# close its campaign.
set -eu
bin=$(dirname "$0")/../../.venv/bin
if [ -x "$bin/ray" ]; then PATH=$(cd "$bin" && pwd):$PATH; fi

export RAY_USAGE_STATS_ENABLED=0 RAY_DEDUP_LOGS=0 RAY_JOB_STOP_WAIT_TIME_S=30
# Without this Ray listens on every interface, whatever address it is given.
export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
export RAY_AUTH_MODE=token
token=${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}
if [ -z "${RAY_AUTH_TOKEN:-}" ] && [ ! -e "$token" ]; then
    mkdir -p "$(dirname "$token")"
    (umask 077 && python3 -c 'import secrets; print(secrets.token_hex(32), end="")' > "$token")
    echo "token written to $token: give clients RAY_AUTH_MODE=token" >&2
fi
exec ray start --head --block --disable-usage-stats --dashboard-host=127.0.0.1 "$@"
