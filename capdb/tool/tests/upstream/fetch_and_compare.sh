#!/usr/bin/env bash
# Runs `capdb patch`, `import` and `drift` on real releases and compares what they print with what is committed; applies the edits to a
# copy, lets Python execute the tables of the edited files, and reverts. Not part of the default test run: some wheels have several
# hundred megabytes. `--update` writes the expected texts instead of comparing them.
#
#   CAPDB   command to run       [target/debug/capdb]
#   WHEELS  where wheels are kept [${XDG_CACHE_HOME:-~/.cache}/archway-wheels]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
capdb=${CAPDB:-$root/target/debug/capdb}
wheels=${WHEELS:-${XDG_CACHE_HOME:-$HOME/.cache}/archway-wheels}
update=${1:-}
releases="sglang==0.5.9 sglang==0.5.15 sglang==0.5.23 vllm==0.11.0 vllm==0.33.0"
gpus="rtx-pro-6000 h200 b200"
platforms="manylinux1_x86_64 manylinux2014_x86_64 manylinux_2_28_x86_64 manylinux_2_31_x86_64 manylinux_2_34_x86_64"
card=rtx-pro-6000
failed=0
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$wheels" "$here/expected"

fail() { echo "$*"; failed=1; }

# fetch DISTRIBUTION==VERSION: downloads a wheel once and unpacks its sources. Prints the folder.
fetch() {
    local distribution=${1%%==*} version=${1##*==} folder wheel options=() platform
    folder=$wheels/un/$distribution-$version
    if [ ! -d "$folder" ]; then
        if ! compgen -G "$wheels/${distribution//-/_}-$version-*.whl" >/dev/null; then
            for platform in $platforms; do options+=(--platform "$platform"); done
            python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.11 "${options[@]}" -d "$wheels" "$1" >&2
        fi
        wheel=$(compgen -G "$wheels/${distribution//-/_}-$version-*.whl" | head -n 1)
        # Unpacked beside and moved, so that an interrupted run leaves no half a tree.
        rm -rf "$folder.part" && mkdir -p "$folder.part"
        unzip -q -o "$wheel" '*.py' '*METADATA' -d "$folder.part"
        mv "$folder.part" "$folder"
    fi
    echo "$folder"
}

run() { "$capdb" --db "$root/capdb/data" "$@"; }

# expect NAME STATUS COMMAND…: what it prints is the committed text, and it exits with one of the statuses.
expect() {
    local name=$1 statuses=$2 text status=0
    shift 2
    text=$("$@") || status=$?
    case " $statuses " in
        *" $status "*) ;;
        *) fail "$name: exit $status" ;;
    esac
    if [ "$update" = --update ]; then
        printf '%s\n' "$text" >"$here/expected/$name"
    elif ! printf '%s\n' "$text" | diff -u "$here/expected/$name" -; then
        fail "$name: the text changed"
    else
        echo "$name: as expected, exit $status"
    fi
}

# row FILE NAME KEY VALUE: Python has this row in the edited copy.
row() {
    local read
    read=$(python3 "$here/read_tables.py" "$copy/site/$1" "$2" "$3") || true
    [ "$read" = "$4" ] || fail "$1: Python has $2[$3] = $read, not $4"
}

# there_and_back PROJECT VERSION FOLDER: apply, read the tables back, apply again in vain, revert to the last byte.
there_and_back() {
    local project=$1 version=$2 sizes='{"2": 67108864, "4": 67108864, "6": 134217728, "8": 134217728}' status gate report changed
    local where=(--project "$project" --path "$copy/site" --gpu $card) forced=(--force --allow-guessed)
    local devices=$project/distributed/device_communicators
    rm -rf "$copy/site"
    # The dot follows a link, so that the edits never reach the original.
    cp -r "$3/." "$copy/site"
    expect "apply-$project-$version-$card.diff" 0 run patch apply "${where[@]}" "${forced[@]}" --dry-run 2>/dev/null
    diff -rq "$3" "$copy/site" || fail "$project $version: a dry run wrote something"
    status=0
    run patch apply "${where[@]}" >/dev/null || status=$?
    [ $status = 1 ] || fail "$project $version: rows without effect are not refused (exit $status)"
    run patch apply "${where[@]}" "${forced[@]}" >/dev/null || fail "$project $version: not applied"
    if [ "$project" = sglang ]; then
        row sglang/srt/${devices#*/}/all_reduce_utils.py TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES 12 "$sizes"
        row sglang/srt/${devices#*/}/torch_symm_mem.py _WORLD_SIZES_MULTIMEM 12 '[]'
    else
        row $devices/all_reduce_utils.py SYMM_MEM_ALL_REDUCE_MAX_SIZES '"12.0"' "$sizes"
        row $devices/all_reduce_utils.py CUSTOM_ALL_REDUCE_MAX_SIZES '"12.0"' '{"2": 524288, "4": 524288, "6": 524288, "8": 524288}'
        row $devices/symm_mem.py _WORLD_SIZES_MULTIMEM '"12.0"' '[]'
    fi
    for gate in $(run patch list --project "$project" | awk '/-fusion-gate/ {print $1}'); do
        status=0
        run patch apply "${where[@]}" "${forced[@]}" --only "$gate" >/dev/null 2>&1 || status=$?
        # Records of other releases are not places of this one.
        if [ $status = 0 ]; then
            report=$(run patch check "${where[@]}") || true
            grep -A2 "\[$gate\]" <<<"$report" | grep -q '^  covered ' || fail "$gate: opened, and does not read as covered"
        fi
    done
    status=0
    run patch apply "${where[@]}" "${forced[@]}" >/dev/null || status=$?
    [ $status = 1 ] || fail "$project $version: fixed twice (exit $status)"
    changed=$({ diff -rq "$3" "$copy/site" || true; } | awk '/ differ$/ {print $4}')
    python3 -c 'import ast, sys; [ast.parse(open(path, encoding="utf-8").read(), path) for path in sys.argv[1:]]' $changed ||
        fail "$project $version: an edited file is not Python"
    echo "$project $version: $(wc -w <<<"$changed") files edited"
    run patch revert --project "$project" --path "$copy/site" >/dev/null || fail "$project $version: not reverted"
    diff -rq "$3" "$copy/site" || fail "$project $version: revert left a difference"
    echo "$project $version: applied, read back and reverted"
}

declare -A before
for release in $releases; do
    project=${release%%==*} version=${release##*==}
    folder=$(fetch "$release")
    if [ "$release" = sglang==0.5.9 ] && [ ! -e "$folder/flashinfer" ]; then
        # The FlashInfer that this release was run with: what lies behind its gate.
        cp -r "$(fetch flashinfer-python==0.6.4)/flashinfer" "$folder/flashinfer.part"
        mv "$folder/flashinfer.part" "$folder/flashinfer"
    fi
    for gpu in $gpus; do
        expect "$project-$version-$gpu.json" "0 1" run patch check --project "$project" --path "$folder" --gpu "$gpu" --format json
    done
    expect "import-$project-$version.yaml" "0 1" run import --project "$project" --path "$folder"
    if [ -n "${before[$project]:-}" ]; then
        expect "drift-$project-$version.txt" "0 1" run drift "${before[$project]}" "$folder" --project "$project"
    fi
    before[$project]=$folder
    there_and_back "$project" "$version" "$folder"
done
exit $failed
