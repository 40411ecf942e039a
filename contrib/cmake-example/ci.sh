#!/bin/sh
# Configures, builds and tests, the same here and on a build machine. `softroce` must be in PATH.
#
#   ./ci.sh [BUILD_DIRECTORY]
set -eu
cd "$(dirname -- "$0")"
build=${1:-build}
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Debug
cmake --build "$build" --parallel
cd "$build"
# `softroce run` says what a test that hangs waits for, if its time is over before that of ctest.
SOFTROCE_TIMEOUT=${SOFTROCE_TIMEOUT:-45} ctest --output-on-failure --timeout 60
