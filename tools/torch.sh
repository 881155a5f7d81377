#!/usr/bin/env bash
# Makes a virtual environment with PyTorch and transformers from PyPI, which the tests of label `torch` and examples/torch use.
# Not: anything that the library needs.
#
# tools/torch.sh [VERSION]: default the one that ./run-tests --all uses. TAWPIPE_TORCH says where (default ${XDG_CACHE_HOME:-~/.cache}/tawpipe/torch).
# On x86-64 PyPI has one build of PyTorch, which brings CUDA's libraries: 5.7 GB. It runs without a GPU.
set -euo pipefail

folder=${TAWPIPE_TORCH:-${XDG_CACHE_HOME:-$HOME/.cache}/tawpipe/torch}
if (($# > 1)); then
  echo "usage: tools/torch.sh [VERSION]" >&2
  exit 2
fi
wanted=torch==${1:-2.15.0}

if [[ ! -x $folder/bin/python ]]; then
  python3 -m venv "$folder" || {
    echo "tools/torch.sh: this Python makes no virtual environments; on Debian: apt-get install python3-venv" >&2
    exit 2
  }
fi
echo "Installing $wanted and transformers in $folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check --retries 2 --timeout 20 "$wanted" numpy==2.4.6 transformers==5.24.0
"$folder/bin/python" - <<'PYTHON'
import sys, torch
if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 10):
    sys.exit(f"tools/torch.sh: PyTorch {torch.__version__} is too old; the tests need 2.10 or later")
print(f"PyTorch {torch.__version__} in {sys.prefix}")
PYTHON
