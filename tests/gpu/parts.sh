# For the scripts beside it, of whose arguments it takes the first two: folders, GPUs, world sizes, and parts of a run with a limit
# of time.
programs=${1:?folder of the programs}
out=${2:?folder for logs}
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$out"
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$out/cache} XDG_DATA_HOME=${XDG_DATA_HOME:-$out/data}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
failed=0

# The world sizes that were asked for, or 2, 4 and 8 as far as there are GPUs. Ends the script where there are none.
world_sizes() {
    sizes=${*:-$(for size in 2 4 8; do [ "$size" -le "$gpus" ] && echo "$size"; done)}
    [ -n "$sizes" ] || { echo "ranks need two GPUs; the driver sees $gpus" >&2 && exit 2; }
}

# Whether there are so many; a failure of the run where there are not.
has_gpus() {
    [ "$1" -le "$gpus" ] && return
    echo "$1 ranks: the driver sees $gpus GPUs" >&2
    failed=1
    return 1
}

# Name, seconds, and the command, or a function of the script, which sets limits of its own. Shows the last LINES_SHOWN lines of
# what it says.
part() {
    local name=$1 limit=(timeout --kill-after=5 "$2") start=$SECONDS
    shift 2
    [ "$(type -t "$1")" != function ] || limit=()
    echo "== $name"
    rm -f "$out/$name.log"
    if "${limit[@]}" "$@" >"$out/$name.log" 2>&1; then echo "   ok, $((SECONDS - start)) s"; else
        echo "   FAILED with $?, $((SECONDS - start)) s"
        failed=1
        tail -n "${LINES_SHOWN:-6}" "$out/$name.log"
        return 1
    fi
    tail -n "${LINES_SHOWN:-6}" "$out/$name.log"
}
