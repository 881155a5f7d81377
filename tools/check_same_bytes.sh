#!/usr/bin/env bash
# Whether several builds of the command `tawpipe` give the same bytes: tools/check_same_bytes.sh build/bin/tawpipe build-clang/bin/tawpipe ...
# Not: whether they are right.
set -euo pipefail
if (($# < 2)); then
  echo "usage: tools/check_same_bytes.sh TAWPIPE TAWPIPE..." >&2
  exit 2
fi
problem=(--cluster 3x8 --model llama-48x1024 --sequence 4096 --global-batch 96)
questions=(
  "compare --schedules all --microbatch 1 --json -"
  "simulate --schedule tawpipe --option buffers=3 --microbatch 2 --timeline -"
  "simulate --schedule tawpipe --jitter 0.03 --stragglers 0.1x2 --interference 0.05 --seed 7 --json -"
  "sweep --schedules tawpipe,fsdp --vary inter-node=1Gbps:1Tbps:log:5 --microbatch 2 --csv -"
  "sensitivity --schedule weipipe --json -"
)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for question in "${questions[@]}"; do
  read -ra words <<<"$question"
  for i in $(seq 1 $#); do
    # Exit code 1 tells of findings (out of memory), which are an answer too.
    "${!i}" "${words[@]}" "${problem[@]}" >"$work/$i" 2>/dev/null || (($? == 1))
    if ! cmp -s "$work/1" "$work/$i"; then
      echo "differ: ${!i} and $1 on: tawpipe $question" >&2
      failed=1
    fi
  done
done
if ((failed == 0)); then echo "$# builds, ${#questions[@]} questions: the same bytes"; fi
exit "$failed"
