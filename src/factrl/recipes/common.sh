# Sourced by each run.sh: prints or runs its steps, one factrl command each.
#
#   DATA=… JUDGE=… GPUS=8 OUT=… bash run.sh [STEP…]
#
# The same call goes on where it was stopped: a verb finds its --output, and does nothing where that is whole.
# DRY=1 prints the commands, with names for what is not given.  TRAIN, TUNE and EVAL are words "key=value …" for each command of that verb.
# With GPUS > 1 what trains is started by accelerate, as ACCELERATE.yaml here says (fsdp; deepspeed; cpu).
set -euo pipefail
if [ -n "${DRY:-}" ]; then : "${DATA:=data}" "${OUT:=out}" "${JUDGE:=http://localhost:8000/v1#judge}"; fi

fail() { echo "$0: $*" >&2 && exit 2; }
[ -n "${OUT:-}" ] || fail "give OUT=, the folder of all that is made"

needs() { # FILE…: stop before the first step where one is missing
    local file
    for file; do [ -n "${DRY:-}" ] || [ -e "$file" ] || fail "$file is missing; data.py writes it (README.md)"; done
}

step() { # NAME VERB WORD…: factrl VERB WORD… --output $OUT/NAME
    local name=$1 verb=$2 start=(factrl) more=()
    shift 2
    all+=("$name")
    if [ -n "${listing:-}" ] || ((${#only[@]})) && [[ " ${only[*]} " != *" $name "* ]]; then return 0; fi
    case $verb in
        train) read -ra more <<<"${TRAIN:-}" ;;
        tune) read -ra more <<<"${TUNE:-}" ;;
        eval) [[ " $* " != *" --model "* ]] || read -ra more <<<"${EVAL:-}" ;; # not where answers exist
    esac
    if [[ ${GPUS:-1} -gt 1 && $verb =~ ^(train|tune)$ ]]; then
        start=(accelerate launch --config_file "$common/accelerate/${ACCELERATE:-fsdp}.yaml" --num_processes "$GPUS" -m factrl)
    fi
    set -- "${start[@]}" "$verb" "$@" "${more[@]}" --output "$OUT/$name"
    echo "$name:$(printf ' %q' "$@")"
    [ -z "${DRY:-}" ] || return 0
    [[ $name == *.jsonl && -e $OUT/$name ]] && return 0 # a file is there whole or not at all
    mkdir -p "$(dirname "$OUT/$name")"
    "$@"
}

script() { # NAME FILE.py WORD…: python FILE.py WORD… --output $OUT/NAME, unless that is there
    local name=$1 words=(python "${@:2}" --output "$OUT/$1")
    all+=("$name")
    if [ -n "${listing:-}" ] || ((${#only[@]})) && [[ " ${only[*]} " != *" $name "* ]]; then return 0; fi
    echo "$name:$(printf ' %q' "${words[@]}")"
    if [ -n "${DRY:-}" ] || [ -e "$OUT/$name" ]; then return 0; fi
    mkdir -p "$(dirname "$OUT/$name")"
    "${words[@]}"
}

on_gpu() { # whether vLLM samples: true with GPUS=, on something else than accelerate's CPU processes
    [ "${GPUS:-0}" != 0 ] && [ "${ACCELERATE:-}" != cpu ] && echo true || echo false
}

run() { # STEP…: the steps of the function `steps`, all or those named
    local only=() all=() listing=1 name
    steps
    for name; do
        [[ " ${all[*]} " == *" $name "* ]] || fail "no step $name; there are: ${all[*]}"
    done
    only=("$@") listing=
    steps
}

# -- For verl.sh

verl() { # NAME WORD…: verl's trainer by the array `words`, then WORDs, with factrl's plugin in each of its processes
    export VERL_USE_EXTERNAL_MODULES=${VERL_USE_EXTERNAL_MODULES:-factrl.bridges.verl_plugin}
    words+=("+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES='$VERL_USE_EXTERNAL_MODULES'" "${@:2}")
    echo "$1: $(printf ' %q' python -m verl.trainer.main_ppo "${words[@]}")"
    [ -n "${DRY:-}" ] || python -m verl.trainer.main_ppo "${words[@]}"
}

do_() { echo "${*@Q}"; [ -n "${DRY:-}" ] || "$@"; }

settled_verl() { # WORD…: a run of the words `settled`, by `train`, the function that has verl's command
    export VERL_USE_EXTERNAL_MODULES=factrl.bridges.verl_plugin
    [ -n "${DRY:-}" ] || mkdir -p "$run"
    # All settings of the reward, as `factrl train` resolves the same words
    echo "factrl train ${settled[*]@Q} --dry-run > $run/reward.toml"
    [ -n "${DRY:-}" ] || factrl train "${settled[@]}" --dry-run >"$run/reward.toml"
    [ -n "${DRY:-}" ] || echo '[{"name": "factrl_agent", "_target_": "factrl.bridges.verl_agent.FactualAgentLoop", "prefill": "", "chat": true}]' >"$run/agent.yaml"
    [ -e "$run/train.parquet" ] || do_ factrl prepare convert "$train" --to verl --config "$run/reward.toml" --output "$run/train.parquet"
    train "$@"
    [ -n "${DRY:-}" ] || ln -sfn "$(find "$run/checkpoints" -path '*/actor/huggingface' | sort -V | tail -n 1)" "$run/model" # what run.sh evaluates
}

common=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
