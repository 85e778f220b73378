# Sourced by the scripts beside it.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

# What is built once for a machine, and shared by all clones on it.
TRAINYARD_CACHE=${TRAINYARD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/trainyard}
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$TRAINYARD_CACHE/target}
tools=$TRAINYARD_CACHE/tools
PATH=$tools/bin:$tools/go/bin:${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
export TRAINYARD_CACHE CARGO_TARGET_DIR PATH

# The target of static binaries.
musl=$(uname -m)-unknown-linux-musl

# What hack/prepare builds for suites: what cargo says of the tests, the agent, and the operator's image.
# shellcheck disable=SC2034
built=$root/target/tests agent=$CARGO_TARGET_DIR/$musl/agent/trainyard-agent image=$CARGO_TARGET_DIR/trainyard-image.tar

say() { echo "==> $*" >&2; }

die() {
    echo "error: $*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }
