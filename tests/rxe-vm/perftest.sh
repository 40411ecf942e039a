#!/bin/bash
# perftest over every combination of ../data/perftest/matrix.toml on the kernel's rdma_rxe, in a throw-away VM.
#
#   perftest.sh [--cache DIR] [--jobs N] [--timeout S] PERFTEST RECORD
#
# PERFTEST is the built program `perftest` of the package e2e; RECORD gets a line for each combination (in the end it is
# ../data/perftest/rxe.tsv), and what it has already is not run again. Both ends use rxe0, whose path MTU is 4096. Needs
# root, Debian 12 amd64, a C compiler with the headers of libibverbs, and for the VM's first run a mirror that apt-get
# can reach. Emulated it takes some 20 minutes.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
cache=() jobs=3 timeout=3000 files=()
while [ $# -gt 0 ]; do
  case $1 in
    --cache) cache=(--cache "$2"); shift 2;;
    --jobs) jobs=$2; shift 2;;
    --timeout) timeout=$2; shift 2;;
    -h|--help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 0;;
    -*) echo "perftest.sh: unknown option $1 (see --help)" >&2; exit 2;;
    *) files+=("$1"); shift;;
  esac
done
program=${files[0]:-} record=${files[1]:-}
[ -x "$program" ] && [ -n "$record" ] || { echo "perftest.sh: needs a program and a record (see --help)" >&2; exit 2; }
program=$(realpath "$program") record=$(realpath "$record")
shared=$(mktemp -d) || exit 1
trap 'rm -rf "$shared"' EXIT
cc -shared -fPIC -o "$shared/shim.so" "$here/../src/perftest/shim.c" || exit 1
cd "$here" || exit 1
"$here/rxe-vm.sh" --no-siw --mtu 4200 --timeout "$timeout" "${cache[@]}" --share "$shared" --share "$(dirname "$program")" \
  --share "$(dirname "$record")" -- \
  "$program" --shim "$shared/shim.so" --server 192.0.2.2 --jobs "$jobs" "$record"
