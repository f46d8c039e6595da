# Shared by the client scripts: a Python environment, and servers that end with the script. Source it.
#
# ARCHWAY   the program; default: the debug build of this checkout
# CLIENTS   folder for environments and downloads; default: target/clients

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
archway=${ARCHWAY:-$root/target/debug/archway}
clients=${CLIENTS:-$root/target/clients}
servers=()
# What goes before the program when a server starts, e.g. taskset.
launcher=()

end_servers() {
    for server in "${servers[@]}"; do
        kill -TERM "$server" 2>/dev/null && wait "$server" 2>/dev/null || true
    done
}
trap end_servers EXIT

# environment NAME REQUIREMENT...: a virtual environment with these packages; sets `python` and `bin`.
environment() {
    local name=$1
    shift
    bin=$clients/$name/bin
    python=$bin/python
    if ! [ -x "$python" ]; then
        python3 -m venv "$clients/$name"
    fi
    "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

# serve ARGUMENT...: starts a server on a free port and waits until it is ready; sets `url`.
serve() {
    local out
    out=$(mktemp)
    "${launcher[@]}" "$archway" serve --port 0 --log-level warn "$@" >"$out" &
    local server=$!
    servers+=("$server")
    url=
    for _ in $(seq 600); do
        kill -0 "$server" 2>/dev/null || { echo "the server ended before it was ready" >&2; return 1; }
        url=$(head -n 1 "$out")
        if [ -n "$url" ] && curl --silent --fail --output /dev/null "$url/health"; then
            rm -f "$out"
            return 0
        fi
        sleep 0.2
    done
    echo "the server is not ready after two minutes" >&2
    return 1
}
