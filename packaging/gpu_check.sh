#!/usr/bin/env bash
# On a machine with an NVIDIA GPU and nvcc: build in place, test, measure, and pack what came out.
#
#   packaging/gpu_check.sh OUT [WHEELS] [SHARED]
#
# OUT     folder for three files: h200.tar.gz (results as JSON), logs.tar.gz, summary.txt
# WHEELS  folder of wheels to install first where there is no package index
# SHARED  test data (default ../shared)
#
# STEPS (default "build test bench"), each of which can run without the others, once there was a build:
#   build      wheels, extension modules
#   test       tests/gpu
#   bench      presets of each model back and forth               -> MODEL.json
#   drops      every sync that is safe alone, each dropped alone   -> drops-MODEL.json
#   record     ways of recording, on shape:15m                     -> record-KIND.json
#   text       greedy text beside the host's                       -> greedy-text.json
#   calibrate  costs of this GPU                                   -> h200.json
#   memcheck   compute-sanitizer: memcheck over tests/gpu but for what is listed below, racecheck over the
#              kernels' tests; three processes side by side
#
# LIMIT_S (default 570) is for all of it: a step that no longer fits is cut short or left out, and named;
# what there is by then is packed.  MODELS, DROP_MODELS, TOKENS, ROUNDS, DROP_ROUNDS, PRESETS and PROMPT choose
# what is measured.  PYTHON (default python3) needs numpy, Cython, setuptools, pytest, pytest-timeout and PyCUDA (or
# find them in WHEELS).  SYNCSCOPE_COMMIT names the commit where the checkout was copied without its history.
set -uo pipefail

out=$(mkdir -p "${1:?usage: gpu_check.sh OUT [WHEELS] [SHARED]}" && cd "$1" && pwd)
wheels=${2:+$(cd "$2" && pwd)}
cd "$(dirname "$0")/.."
shared=$(cd "${3:-../shared}" 2>/dev/null && pwd || true)
python=${PYTHON:-python3}
site=${SITE:-/tmp/syncscope-site}
steps=${STEPS:-build test bench}
limit=${LIMIT_S:-570}
tokens=${TOKENS:-200}
rounds=${ROUNDS:-4}
export SYNCSCOPE_SHARED=$shared PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$PWD/build/cython-root:$site:${PYTHONPATH:-}
work=$(mktemp -d)
results=$work/results logs=$work/logs
mkdir "$results" "$logs"
failed=0

# Left out of memcheck, each for what it does and not for what memcheck says of it:
#   test_endurance.py    counts memory, of which the tool takes its own share; tens of thousands of steps
#   loses_the_context    writes to an illegal address, which is what memcheck is there to find
#   no_memory_behind     measures the GPU's free memory while other processes take some
#   loses_no_stamps      thousands of steps of kernels that the other tests run as well
#   lie_between          holds times to bounds that a slowed GPU does not keep
#   cupti                the tool is a subscriber of CUPTI's itself, which has room for one
unchecked="loses_the_context or no_memory_behind or loses_no_stamps or lie_between or cupti"
unchecked+=" or syncs_of_decode_steps or waits_13_and_5 or counted_as_issued or each_recording_costs"
unchecked+=" or takes_what_it_takes or lower_bounds_of_what or holds_all_its_kernels or take_turns or no_recording_changes"

say() { printf '%s\n' "$*" | tee -a "$work/summary.txt"; }

finish() {
    tables >>"$work/summary.txt" 2>&1
    say "done in ${SECONDS} s, failed=$failed"
    cp "$work/summary.txt" "$out/summary.txt"
    tar -C "$results" -czf "$out/h200.tar.gz" .
    tar -C "$logs" -czf "$out/logs.tar.gz" .
    rm -rf "$work"
    exit "$failed"
}
trap finish EXIT
trap 'failed=1; exit' INT TERM

tables() {
    local place
    for place in steps drops record text; do
        printf '<!-- %s -->\n<!-- end -->\n\n' "$place"
    done >"$work/tables.md"
    timeout 60 "$python" packaging/results_table.py "$results" "$work/tables.md" && cat "$work/tables.md"
}

wanted() { [[ " $steps " == *" $1 "* ]]; }

bounded() { # name, seconds at most, command...: keep the log, return the status; 124: cut short
    local name=$1 most=$2 left=$((limit - SECONDS - 20)) # to pack what there is
    shift 2
    ((most < left)) || most=$left
    if ((most < 5)); then
        echo "no time is left" >"$logs/$name.log"
        return 124
    fi
    timeout --kill-after=10 "$most" "$@" >"$logs/$name.log" 2>&1
}

report() { # name, status, lines of the log to show, seconds
    local words=ok
    [ "$2" = 0 ] || { failed=1; words="FAILED with status $2"; }
    [ "$2" = 124 ] || [ "$2" = 137 ] && words="CUT SHORT: out of time"
    say "== $1: $words (${4} s, until ${SECONDS} s)"
    tail -n "$3" "$logs/$1.log" | tee -a "$work/summary.txt"
}

run() { # name, seconds at most, lines of the log to show, command...
    local name=$1 most=$2 lines=$3 began=$SECONDS status
    shift 3
    bounded "$name" "$most" "$@"
    status=$?
    report "$name" "$status" "$lines" $((SECONDS - began))
}

bench() { # name of the file, seconds at most, options...
    local name=$1 most=$2
    shift 2
    run "$name" "$most" 12 "$python" -m syncscope --no-gui -q --device cuda --prompt "${PROMPT:-1}" \
        --tokens "$tokens" --rounds "$rounds" --json "$results/$name.json" --markdown "$logs/$name.md" "$@"
}

file_of() { basename "$1" .safetensors | tr ':' '-'; }

sanitize() { # name, seconds at most, tool, tests...
    local name=$1 most=$2 tool=$3
    shift 3
    bounded "$name" "$most" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 \
        --report-api-errors no "$python" -m pytest -q -p no:cacheprovider -o timeout=400 --durations=12 "$@"
    echo $? >"$work/$name.status"
}

if wanted build; then
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv 2>&1 | tee -a "$work/summary.txt"
    if [ -n "$wheels" ]; then
        run wheels 120 3 "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade \
            --target "$site" "$wheels"/*.whl
    fi
    run build 300 3 "$python" setup.py --quiet build_ext --inplace
fi

if wanted test; then
    run tests 400 80 "$python" -m pytest -q -p no:cacheprovider -o timeout=200 -rP --durations=12 tests/gpu
fi

if wanted bench; then
    for model in ${MODELS:-tiny $shared/data/models/stories260K.safetensors shape:15m shape:135m shape:1b}; do
        bench "$(file_of "$model")" 200 --model "$model" --preset "${PRESETS:-no-graph,saaasg,aaag,all}"
    done
fi

if wanted drops; then
    for model in ${DROP_MODELS:-shape:15m shape:135m shape:1b}; do
        bench "drops-${model#shape:}" 300 --model "$model" --drop-each safe --rounds "${DROP_ROUNDS:-$rounds}"
    done
fi

if wanted record; then
    built=$("$python" -c 'from syncscope.sched_core.cuda_backend import RECORDS; print(*RECORDS)')
    for kind in off stamps events cupti; do
        if [[ " $built " == *" $kind "* ]]; then
            bench "record-$kind" 90 --model "${RECORD_MODEL:-shape:15m}" --preset baseline,all --record "$kind"
        else
            say "== record-$kind: left out, there is no --record $kind"
        fi
    done
fi

if wanted text; then
    run greedy-text 90 5 "$python" packaging/greedy_text.py "$results/greedy-text.json"
fi

if wanted calibrate; then
    if "$python" -m syncscope calibrate --help >/dev/null 2>&1; then
        run calibrate 180 12 "$python" -m syncscope calibrate --device cuda \
            --out "$results/h200.json" --timeline "$logs/calibrate-traces.json"
    else
        say "== calibrate: left out, there is no such command"
    fi
fi

if wanted memcheck; then
    sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
    kernels=tests/gpu/test_kernels_against_host.py
    began=$SECONDS
    sanitize memcheck-kernels 520 memcheck "$kernels" &
    sanitize memcheck-runs 520 memcheck tests/gpu --ignore "$kernels" \
        --ignore tests/gpu/test_endurance.py -k "not ($unchecked)" &
    {
        sanitize racecheck-shared 520 racecheck "$kernels" -k "attention or argmax"
        sanitize racecheck-others 520 racecheck "$kernels" -k "not (attention or argmax)"
    } &
    wait
    say "memcheck leaves out: test_endurance.py or $unchecked"
    for name in memcheck-kernels memcheck-runs racecheck-shared racecheck-others; do
        report "$name" "$(cat "$work/$name.status")" 18 $((SECONDS - began))
    done
fi
