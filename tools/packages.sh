# Sourced by quickstart and run-tests: installs the Debian packages that are missing, or says which they are.
# Not: a program of its own.

tawpipe_build_packages=(g++ cmake ninja-build libboost-graph-dev libfmt-dev libcli11-dev nlohmann-json3-dev libpugixml-dev libyaml-cpp-dev
  libopenblas-pthread-dev libopenmpi-dev openmpi-bin libprotobuf-dev protobuf-compiler)  # not -serial: it gives wrong numbers where several threads multiply
tawpipe_test_packages=(doctest-dev libbenchmark-dev python3 clang-format pkg-config)
# Without these some tests skip (`./run-tests --all`).
tawpipe_more_test_packages=(chromium chromium-driver python3-selenium mkdocs mkdocs-material python3-venv python3-dev clang
  libclang-rt-14-dev)

# The command that a package brings, for those that users often have from elsewhere.
tawpipe_command_of() {
  case $1 in
    ninja-build) echo ninja ;;
    g++ | cmake | python3 | clang-format | pkg-config) echo "$1" ;;
  esac
}

# tawpipe_install <package>...: exits 2 where it may not install what is missing.
tawpipe_install() {
  local package command missing=()
  if ! command -v apt-get >/dev/null; then
    echo "Not a Debian system; nothing is installed. Needed, by their Debian names: $*"
    return 0
  fi
  for package in "$@"; do
    command=$(tawpipe_command_of "$package")
    if [[ -n $command ]] && command -v "$command" >/dev/null; then continue; fi
    if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then missing+=("$package"); fi
  done
  if ((${#missing[@]} == 0)); then
    echo "All packages are installed."
    return 0
  fi

  local as_root=()
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      echo "Missing packages, and no right to install them. Run this, then start again:" >&2
      echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
      exit 2
    fi
    as_root=(sudo -n)
  fi
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}")
  echo "Installing: ${missing[*]}"
  # The package lists are fetched only where they turn out to be absent or stale.
  if ! "${install[@]}" >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -qq && "${install[@]}" >/dev/null || {
      echo "apt-get could not install: ${missing[*]}" >&2
      exit 2
    }
  fi
}
