#!/usr/bin/env bash
# Runs `capdb patch check` on real releases and compares the reports with the committed ones. Not part of the default test
# run: some wheels have several hundred megabytes. `--update` writes the reports instead.
#
#   CAPDB   command to run       [target/debug/capdb]
#   WHEELS  where wheels are kept [${XDG_CACHE_HOME:-~/.cache}/archway-wheels]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
capdb=${CAPDB:-$root/target/debug/capdb}
wheels=${WHEELS:-${XDG_CACHE_HOME:-$HOME/.cache}/archway-wheels}
releases="sglang==0.5.9 sglang==0.5.15 sglang==0.5.23 vllm==0.11.0 vllm==0.33.0"
gpus="rtx-pro-6000 h200 b200"
platforms="manylinux1_x86_64 manylinux2014_x86_64 manylinux_2_28_x86_64 manylinux_2_31_x86_64 manylinux_2_34_x86_64"
failed=0
mkdir -p "$wheels"
for release in $releases; do
    project=${release%%==*} version=${release##*==}
    folder=$wheels/un/$project-$version
    if [ ! -d "$folder" ]; then
        if ! compgen -G "$wheels/$project-$version-*.whl" >/dev/null; then
            options=()
            for platform in $platforms; do options+=(--platform "$platform"); done
            python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.11 "${options[@]}" \
                -d "$wheels" "$release"
        fi
        wheel=$(compgen -G "$wheels/$project-$version-*.whl" | head -n 1)
        # Unpacked beside and moved, so that an interrupted run leaves no half a tree.
        rm -rf "$folder.part" && mkdir -p "$folder.part"
        unzip -q -o "$wheel" '*.py' '*METADATA' -d "$folder.part"
        mv "$folder.part" "$folder"
    fi
    for gpu in $gpus; do
        expected=$here/expected/$project-$version-$gpu.json
        status=0
        report=$("$capdb" --db "$root/capdb/data" patch check --project "$project" --path "$folder" --gpu "$gpu" --format json) ||
            status=$?
        if [ "$status" -gt 1 ]; then
            echo "$project $version $gpu: exit $status"
            failed=1
        fi
        if [ "${1:-}" = --update ]; then
            printf '%s\n' "$report" >"$expected"
        elif ! printf '%s\n' "$report" | diff -u "$expected" -; then
            echo "$project $version $gpu: the report changed"
            failed=1
        else
            echo "$project $version $gpu: as expected, exit $status"
        fi
    done
done
exit $failed
