#!/usr/bin/env bash
# A Ray cluster of several nodes on this machine, for trying things out before using machines that cost money.
# It listens on loopback only, requires a token, and sends no telemetry. `cluster/local.sh help` shows its usage.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${XDG_STATE_HOME:-$HOME/.local/state}/icalib/local-cluster
token=$state/token     # mode 0600, created once, kept by `down`
pidfile=$state/pid     # of local_nodes.py, which leads the session (setsid) of all nodes
exports=$state/exports # environment variables to reach the nodes
scratch=$state/scratch # a link to Ray's folder in /tmp: elsewhere paths of sockets could exceed 107 bytes, their limit
log=$state/nodes.log

nodes=2
cpus=
port=6379
dashboard_port=8265

usage() {
    cat <<'TEXT'
usage: cluster/local.sh up [--nodes N] [--cpus C] [--port P] [--dashboard-port D]
       cluster/local.sh status
       cluster/local.sh down

up      starts a head without CPUs and N worker nodes (default 2) with C CPUs each (default: the machine's CPUs divided
        by N) on 127.0.0.1, waits for them, and prints the variables to export: eval "$(cluster/local.sh up)". If the
        nodes are running already, it only prints the variables.
status  shows the nodes' resources; exit status 1 if no nodes are running.
down    stops these nodes and no other Ray.
TEXT
}

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "error: $*"
    exit 2
}

leader() { # prints the pid of local_nodes.py if it runs; pids are reused, so the pid file alone is not enough
    local pid
    pid=$(cat "$pidfile" 2>/dev/null) || return
    # -ww: where COLUMNS is set, ps would cut a long path.
    [[ $(ps -ww -o args= -p "$pid" 2>/dev/null) == *local_nodes.py* ]] && echo "$pid"
}

python_of_icalib() {
    if [[ -x $here/../.venv/bin/python ]]; then
        echo "$here/../.venv/bin/python"
    else
        command -v python3 || fail "no python3 found. Run \`make venv\`, or activate the environment that has icalib."
    fi
}

number() {
    [[ ${2:-} =~ ^[1-9][0-9]{0,4}$ ]] || fail "$1 ${2:-}: expected a whole number from 1 to 99999."
    echo "$2"
}

parse_up() {
    while (($#)); do
        case $1 in
        --nodes) nodes=$(number "$@") ;;
        --cpus) cpus=$(number "$@") ;;
        --port) port=$(number "$@") ;;
        --dashboard-port) dashboard_port=$(number "$@") ;;
        *) fail "unknown option $1; see cluster/local.sh help." ;;
        esac
        shift 2
    done
    ((port <= 65535 && dashboard_port <= 65535 && port != dashboard_port)) ||
        fail "--port $port --dashboard-port $dashboard_port: expected two ports up to 65535."
    local cpus_per_node=$(($(getconf _NPROCESSORS_ONLN) / nodes))
    cpus=${cpus:-$((cpus_per_node > 0 ? cpus_per_node : 1))}
}

require_free() {
    if (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; then
        fail "port $2 is taken, perhaps by another Ray. Use another one with $1."
    fi
}

make_token() {
    [[ -s $token ]] || "$1" -c 'import secrets; print(secrets.token_hex(32), end="")' >"$token"
    chmod 600 "$token"
}

write_exports() {
    cat >"$exports" <<TEXT
export RAY_ADDRESS=127.0.0.1:$port
export RAY_API_SERVER_ADDRESS=http://127.0.0.1:$dashboard_port
export RAY_AUTH_MODE=token
export RAY_AUTH_TOKEN_PATH=$(printf %q "$token")
export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0  # listen on loopback only
export RAY_USAGE_STATS_ENABLED=0
export RAY_USAGE_STATS_REPORT_URL=http://127.0.0.1:9/
TEXT
}

start_nodes() { # in a new session, so that they survive this shell and `down` finds all of them
    local python=$1
    # shellcheck source=/dev/null
    source "$exports"
    # RAY_TMPDIR: in /tmp/ray, Ray would record this cluster's address for every other Ray of this user.
    RAY_TMPDIR=$(readlink "$scratch") PATH=$(dirname "$python"):$PATH \
        setsid "$python" "$here/local_nodes.py" --nodes "$nodes" --cpus "$cpus" --port "$port" \
        --dashboard-port "$dashboard_port" >"$state/address" 2>"$log" </dev/null &
    echo $! >"$pidfile"
}

await_nodes() {
    local waited
    for ((waited = 0; waited < 180; waited++)); do
        [[ -s $state/address ]] && return
        kill -0 "$(cat "$pidfile")" 2>/dev/null || break
        sleep 1
    done
    say "The nodes did not start; the last lines of $log:"
    tail -n 20 "$log" >&2 || true
    stop_nodes
    exit 1
}

stop_nodes() {
    local pid waited
    if pid=$(leader); then
        kill -TERM "$pid"
        for ((waited = 0; waited < 60; waited++)); do
            leader >/dev/null || break
            sleep 0.5
        done
    fi
    # Stop the processes that are left in the session if its leader was killed. Any other Ray is in another session; if
    # the session id was reused, there is no Ray in that session.
    [[ ! -s $pidfile ]] || pkill -KILL --session "$(cat "$pidfile")" --full ray || true
    [[ ! -L $scratch ]] || rm -rf "$(readlink "$scratch")"
    rm -f "$pidfile" "$exports" "$scratch" "$state/address"
}

up() {
    parse_up "$@"
    if leader >/dev/null; then
        say "Already running; \`cluster/local.sh down\` stops it."
        cat "$exports"
        return
    fi
    local python
    python=$(python_of_icalib)
    mkdir -p "$state"
    stop_nodes
    require_free --port "$port"
    require_free --dashboard-port "$dashboard_port"
    make_token "$python"
    ln -s "$(mktemp -d /tmp/icalib-local-XXXXXX)" "$scratch"
    write_exports
    trap 'stop_nodes; exit 130' INT TERM
    start_nodes "$python"
    say "Starting a head and $nodes worker nodes of $cpus CPUs on 127.0.0.1 …"
    await_nodes
    trap - INT TERM
    cat "$exports"
    say "Running. With these variables in your shell (eval \"\$(cluster/local.sh up)\" sets them) you can use:"
    say "  icalib doctor"
    say "  icalib submit jobs/icast.yaml --set options.data=\$PWD/pools/mine --set options.runs=\$PWD/runs --set options.backbone=minilm"
    say "  cluster/local.sh down"
}

status() {
    if ! leader >/dev/null; then
        say "No nodes are running. Start them with: cluster/local.sh up"
        exit 1
    fi
    # shellcheck source=/dev/null
    source "$exports"
    "$(python_of_icalib)" -m ray.scripts.scripts status
}

down() {
    leader >/dev/null || say "No nodes are running."
    stop_nodes
    say "In a shell with their variables: unset RAY_ADDRESS RAY_API_SERVER_ADDRESS RAY_AUTH_TOKEN_PATH"
}

umask 077
verb=${1:-help}
shift || true
case $verb in
up) up "$@" ;;
status) status ;;
down) down ;;
help | -h | --help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
