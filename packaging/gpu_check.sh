#!/usr/bin/env bash
# On a machine with an NVIDIA GPU and nvcc: build in place, run tests/gpu, run the benchmark set, and pack
# what came out.
#
#   packaging/gpu_check.sh OUT [WHEELS] [SHARED]
#
# OUT     folder for the results: one JSON per model, logs, summary.md, and h200.tar.gz with the JSON files
# WHEELS  folder of wheels to install first where there is no package index
# SHARED  test data (default ../shared)
#
# PYTHON (default python3) needs numpy, Cython, setuptools, pytest and PyCUDA (or find them in WHEELS).
# SYNCSCOPE_COMMIT names the commit where the checkout was copied without its history.
# STEPS (default "build test bench") says what to do; MODELS, TOKENS and ROUNDS choose the benchmark set.
set -uo pipefail

out=$(mkdir -p "${1:?usage: gpu_check.sh OUT [WHEELS] [SHARED]}" && cd "$1" && pwd)
wheels=${2:-}
cd "$(dirname "$0")/.."
shared=$(cd "${3:-../shared}" 2>/dev/null && pwd || true)
python=${PYTHON:-python3}
steps=${STEPS:-build test bench}
export SYNCSCOPE_SHARED=$shared PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$PWD/build/cython-root:${SITE:-/tmp/syncscope-site}:${PYTHONPATH:-}
failed=0

say() { printf '\n== %s (%ss)\n' "$1" "$SECONDS"; }

run() { # name, command...: keep the log, show its end, go on when it fails
    local name=$1
    shift
    say "$name"
    "$@" >"$out/$name.log" 2>&1 || { failed=1; echo "failed: $name"; }
    tail -n "${LINES_SHOWN:-25}" "$out/$name.log"
}

if [[ $steps == *build* ]]; then
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv
    if [ -n "$wheels" ]; then
        run wheels "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade \
            --target "${SITE:-/tmp/syncscope-site}" "$wheels"/*.whl
    fi
    LINES_SHOWN=5 run build "$python" setup.py --quiet build_ext --inplace
fi
if [[ $steps == *test* ]]; then
    LINES_SHOWN=60 run tests "$python" -m pytest -q -p no:cacheprovider tests/gpu
fi
if [[ $steps == *bench* ]]; then
    presets=${PRESETS:-no-graph,saaasg,aaag,all}
    files=()
    for model in ${MODELS:-tiny $shared/data/models/stories260K.safetensors shape:15m shape:135m shape:1b}; do
        name=$(basename "$model" .safetensors | tr ':' '-')
        run "bench-$name" "$python" -m syncscope --no-gui -q --device cuda --model "$model" \
            --prompt "${PROMPT:-1}" --tokens "${TOKENS:-256}" --preset "$presets" \
            --rounds "${ROUNDS:-4}" --json "$out/$name.json" --markdown "$out/$name.md"
        [ -s "$out/$name.json" ] && files+=("$name.json")
    done
    cat "$out"/*.md >"$out/summary.txt" 2>/dev/null
    [ ${#files[@]} -gt 0 ] && tar -C "$out" -czf "$out/h200.tar.gz" "${files[@]}"
fi
say "done, failed=$failed"
exit $failed
