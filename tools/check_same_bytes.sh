#!/usr/bin/env bash
# Whether several builds of the command `tawpipe` give the same bytes: tools/check_same_bytes.sh build/bin/tawpipe build-clang/bin/tawpipe ...
# The questions are those of tests/golden/answers.txt, which every build that runs the tests answers too.
# Not: whether they are right.
set -euo pipefail
if (($# < 2)); then
  echo "usage: tools/check_same_bytes.sh TAWPIPE TAWPIPE..." >&2
  exit 2
fi
mapfile -t questions < <(cut -c18- "$(dirname "${BASH_SOURCE[0]}")/../tests/golden/answers.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for question in "${questions[@]}"; do
  read -ra words <<<"$question"
  for i in $(seq 1 $#); do
    # Exit code 1 tells of findings (out of memory), which are an answer too.
    "${!i}" "${words[@]}" >"$work/$i" 2>/dev/null || (($? == 1))
    if ! cmp -s "$work/1" "$work/$i"; then
      echo "differ: ${!i} and $1 on: tawpipe $question" >&2
      failed=1
    fi
  done
done
if ((failed == 0)); then echo "$# builds, ${#questions[@]} questions: the same bytes"; fi
exit "$failed"
