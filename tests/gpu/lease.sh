#!/usr/bin/env bash
# What a GPU that is lent for minutes is to answer, in two calls:
#
#   tests/gpu/lease.sh pack [BUILD]   here, without a GPU: programs into build-lease/lease.tar.gz (BUILD: those of another build)
#   tests/gpu/lease.sh 1 RESULTS      480 s there: numbers and speeds of layers and kernels
#   tests/gpu/lease.sh 2 RESULTS      230 s there: schedules, NCCL, failures, compute-sanitizer, ncu
#
# A call writes at most nine files: steps.jsonl (a line a step: its exit code, 77 if it skipped, 124 if it was ended, and its
# seconds), log.txt, and the numbers. Each step has its own limit and ends with what it started; a step with no time left is left
# out, and says so. Ends with 1 if a step failed.
#
#   LEASE_ARCHIVE  the archive (build-lease/lease.tar.gz); where none is, or its programs do not start, they are built there
#   LEASE_DIVIDE   benchmarks by so many times smaller: to rehearse over the software GPU
#   LEASE_SECONDS  for the whole call
#   LEASE_STEPS    only the steps of these names (a regular expression)
#   LEASE_KERNEL   the kernel that ncu reads (a regular expression)
# Not: the tests that need no GPU (./run-tests).
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
archive=${LEASE_ARCHIVE:-$root/build-lease/lease.tar.gz}
programs=(gpu_device gpu_layers_kernels gpu_layers_products gpu_layers_decoder gpu_layers_cudnn gpu_pytorch gpu_virtual gpu_nccl
  bench_gpu_layer bench_gpu_kernels bench_gpu_tawpipe bench_gpu_beside)

build() { # FOLDER ARCHITECTURES TARGET...
  cmake -S "$root" -B "$1" ${LEASE_GENERATOR:-} -DCMAKE_BUILD_TYPE=Release -DTAWPIPE_BUILD_TESTS=OFF -DTAWPIPE_BUILD_EXAMPLES=OFF \
    -DTAWPIPE_BUILD_BENCHMARKS=OFF -DTAWPIPE_BUILD_GPU_TESTS=ON -DTAWPIPE_ENABLE_CUDA=ON -DTAWPIPE_ENABLE_MPI=OFF \
    -DTAWPIPE_INSTALL=OFF -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=24 "-DTAWPIPE_CUDA_ARCHITECTURES=$2" "-DCMAKE_PREFIX_PATH=$(packages_of_python ';')" \
    && cmake --build "$1" --parallel "$(nproc)" --target "${@:3}"
}

# Where pip keeps NCCL, cuDNN and the toolkit's libraries, for machines that have them nowhere else.
packages_of_python() { # SEPARATOR
  python3 - "$1" <<'PY'
import importlib.util, pathlib, sys
spec = importlib.util.find_spec("nvidia")
found = [pathlib.Path(base) / name for base in (spec.submodule_search_locations if spec else ()) for name in ("nccl", "cudnn", "cu13")]
print(sys.argv[1].join(str(one) for one in found if one.is_dir()))
PY
}

# The programs, flat, with what they need of this machine but glibc, the compiler's runtime and NVIDIA's libraries.
pack() { # BUILD
  local from=$1 into
  into=$(mktemp -d)
  mkdir -p "$into/lib" "$(dirname "$archive")"
  for name in "${programs[@]}"; do cp "$from"/{tests,bench}/"$name" "$into/" 2>/dev/null; done
  cp "$from"/tests/gpu/*.reference "$from"/bin/tawpipe "$into/"
  cp "$from"/bin/tawpipe-cuda.so "$into/"
  find "$into" -maxdepth 1 -type f ! -name '*.reference' -exec strip {} +
  find "$into" -maxdepth 1 -type f ! -name '*.reference' -exec ldd {} \; | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u \
    | grep -Ev '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcudart|libcublas|libcublasLt|libcudnn|libnccl|libcuda)\.so' \
    | xargs -r cp -Lt "$into/lib"
  tar -C "$into" -czf "$archive" . && rm -r "$into"
  ls -l "$archive"
}

if [[ ${1:-} == pack ]]; then
  build=${2:-$root/build-lease}
  if [[ -z ${2:-} ]]; then build "$build" 90-real "${programs[@]}" tawpipe_gpu_references tawpipe_program || exit; fi
  pack "$build"
  exit
fi
if [[ ! ${1:-} =~ ^[12]$ || -z ${2:-} ]]; then
  sed -n '2,/^# Not/p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi

call=$1 divide=${LEASE_DIVIDE:-1}
limits=(0 480 230)
seconds=${LEASE_SECONDS:-${limits[$call]}}
mkdir -p "$2"
results=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
at=$work/programs
mkdir "$at" && touch "$work/failed"
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}$at/lib
for folder in $(packages_of_python ' '); do LD_LIBRARY_PATH+=:$folder/lib; done
export PYTHONUNBUFFERED=1 TAWPIPE_RANKS_LIMIT=90 PATH=$PATH:/usr/local/cuda/bin:/opt/nvidia/nsight-compute

now() { echo "${EPOCHREALTIME/[.,]/}"; }
took() { awk "BEGIN { printf \"%.1f\", ($(now) - $1) / 1e6 }"; }

# step NAME LIMIT NUMBERS COMMAND...: its JSON lines are added to the file NUMBERS (-: it has none; tool: nor need the machine
# have the command), all that it says to the log.
step() {
  local name=$1 limit=$2 numbers=$3 begun code said=$work/$1
  shift 3
  if [[ -n ${LEASE_STEPS:-} && ! $name =~ ^(${LEASE_STEPS})$ ]]; then return; fi
  if ((divide > 1)); then limit=$((3 * limit)); fi  # no GPU is as slow as the software GPU
  local left=$((seconds - SECONDS - 5))
  if ((left < 3)); then
    echo "$name: left out, the call's time is over"
    printf '{"call": %d, "step": "%s", "exit": null, "seconds": 0}\n' "$call" "$name" >>"$results/steps.jsonl"
    return
  fi
  begun=$(now)
  timeout -k 3 $((limit < left ? limit : left)) "$@" >"$said.out" 2>"$said.err"
  code=$?
  if ((code == 137)); then code=124; fi
  if ((code == 124 && left < limit)); then code=null; fi  # the call's time was over, not the step's
  # A sanitizer or profiler that refuses this device has found nothing, right or wrong.
  if [[ $code != [0n]* ]] && grep -qE 'Device not supported|ERR_NVGPUCTRPERM|LibraryNotLoaded' "$said".???; then code=77; fi
  if [[ $code == 127 && $numbers == tool ]]; then code=77; fi
  printf '{"call": %d, "step": "%s", "exit": %s, "seconds": %s}\n' "$call" "$name" "$code" "$(took "$begun")" >>"$results/steps.jsonl"
  if [[ $numbers == *.jsonl ]]; then grep '^{.*}$' "$said.out" >>"$results/$numbers"; fi
  { echo "== $name: exit $code: $*"; tail -c 30000 "$said.out"; tail -c 20000 "$said.err"; } >"$said.log"
  cat "$said.log" >>"$results/log.txt"
  echo "$name: exit $code, $(took "$begun") s"
  if [[ ! $code =~ ^(0|77|null)$ ]]; then
    echo "$name" >>"$work/failed"
    tail -c 1500 "$said.log"
  fi
}

facts() {
  printf '{"call": %d, "date": "%s", "commit": "%s", "host": "%s", "cores": %d, "device": "%s", "nccl_cudnn": "%s"}\n' "$call" \
    "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(git -C "$root" rev-parse HEAD 2>/dev/null)" "$(uname -r)" "$(nproc)" \
    "$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader 2>/dev/null)" \
    "$(python3 -c 'import importlib.metadata as m
print(*(f"{d.name} {d.version}" for d in m.distributions() if d.name in ("torch", "triton", "nvidia-nccl-cu13", "nvidia-cudnn-cu13", "nvidia-cublas")))' 2>/dev/null)"
}
facts | tee -a "$results/steps.jsonl"

tar -C "$at" -xzf "$archive" 2>/dev/null
if [[ ! -x $at/gpu_device ]] || missing=$(ldd "$at/gpu_device" 2>&1 | grep 'not found'); then
  echo "no programs were carried, or they do not start: ${missing:-no $archive}"
  step build 300 - build "$work/build" native "${programs[@]}" tawpipe_gpu_references
  for name in "${programs[@]}"; do cp "$work"/build/{tests,bench}/"$name" "$at/" 2>/dev/null; done
  cp "$work"/build/tests/gpu/*.reference "$at/"
fi
tawpipe=$at/tawpipe ranks=$root/tests/gpu/ranks.py

if [[ $call == 1 ]]; then
  twin=("$root/bench/gpu/layer_pytorch.py" "$at/bench_gpu_layer")
  # Numbers at the same time, and PyTorch compiles into its cache: no speed is measured yet.
  step torch_compiles 150 - python3 "${twin[@]}" "$divide" --compile &
  step device 60 - "$at/gpu_device" &
  step kernels 60 - "$at/gpu_layers_kernels" &
  step products 60 - "$at/gpu_layers_products" &
  step decoder 60 - "$at/gpu_layers_decoder" "$root/tests/data" &
  step cudnn 60 - "$at/gpu_layers_cudnn" &
  step pytorch 90 - python3 "$root/tests/gpu/pytorch_numbers.py" "$at/gpu_pytorch" &
  wait
  step layer 90 layer.jsonl "$at/bench_gpu_layer" "$divide"
  step measure 90 - "$tawpipe" measure ${LEASE_MEASURE:-} --out "$results/measured.json"
  step layer_pytorch 150 layer.jsonl python3 "${twin[@]}" "$divide"
  step layer_predicted 30 layer.jsonl python3 "$root/tests/gpu/layer_predictions.py" "$tawpipe" "$results" "$divide"
  for tokens in 16384 4096; do step "kernels_$tokens" 45 kernels.jsonl "$at/bench_gpu_kernels" "$divide" "$tokens"; done
  step held_sms 60 beside.jsonl "$at/bench_gpu_beside" "$divide"
  step training 200 training.jsonl python3 "$root/bench/gpu/training.py" "$tawpipe" "$results/measured.json" "$divide"
  step virtual_ranks 60 virtual.jsonl "$at/bench_gpu_tawpipe" "$divide"
  step step_pytorch 130 step_pytorch.jsonl python3 "$root/bench/gpu/step_pytorch.py"
else
  nccl="$at/gpu_nccl $at/A.reference"
  step virtual_A 100 - "$at/gpu_virtual" "$at/A.reference" tawpipe weipipe fsdp 1f1b zb-v &
  step virtual_B 100 - "$at/gpu_virtual" "$at/B.reference" tawpipe weipipe fsdp zb-h1 &
  step nccl_2 100 - python3 "$ranks" 2 $nccl 1+1 tawpipe fsdp 1f1b &
  wait
  step throw 45 - python3 "$ranks" --throw 1 --within 10 2 $nccl 2 --throw 1 tawpipe &
  step stall 45 - python3 "$ranks" --stall 1 2 $nccl 1+1 --stall 1 tawpipe &
  step memcheck 90 tool compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 "$at/gpu_layers_kernels" &
  step racecheck 90 tool compute-sanitizer --tool racecheck --error-exitcode 1 "$at/gpu_layers_kernels" &
  wait
  step ncu 60 tool ncu --clock-control none --set basic --section MemoryWorkloadAnalysis --launch-skip 3 --launch-count 2 \
    --kernel-name-base demangled --kernel-name "regex:${LEASE_KERNEL:-SumRuns}" "$at/bench_gpu_kernels" "$divide"
  step command 90 - python3 "$root/tests/gpu/command.py" "$tawpipe" "$ranks" "$root/tests/data/llama_golden/A"
fi
echo "call $call took $SECONDS s; $(wc -l <"$work/failed") steps failed: $(tr '\n' ' ' <"$work/failed")"
[[ ! -s $work/failed ]]
