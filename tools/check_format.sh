#!/usr/bin/env bash
# clang-format over our sources: differences are errors. `tools/check_format.sh --fix` rewrites them.
# Not: for another clang-format than 14 (Debian 12), which may format differently: that skips (exit 77).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [[ -z $formatter ]]; then
  echo "skipped: clang-format is not installed"
  exit 77
fi
if ! "$formatter" --version | grep -q 'version 14\.'; then
  echo "skipped: this is $("$formatter" --version), the files are formatted by version 14"
  exit 77
fi

folders=()
for folder in include src sim tests bench examples; do
  [[ -d $folder ]] && folders+=("$folder")
done
mode=(--dry-run -Werror)
[[ ${1:-} == --fix ]] && mode=(-i)
find "${folders[@]}" -type f \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -r "$formatter" --style=file "${mode[@]}"
