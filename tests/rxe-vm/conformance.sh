#!/bin/bash
# The conformance suite on the kernel's soft RDMA devices in a throw-away VM, through libibverbs.
#
#   conformance.sh [options] SOFTROCE        SOFTROCE: the built command
#     --cache DIR      of the VM
#     --kernel PKG     the guest's kernel image package
#     --filter TEXT    only cases whose id or title contains this
#     --only BED       rxe0, veth, wire or siw0 instead of all
#     --reports DIR    keep the reports here, as BED.txt, and the packets of each case that deviates or fails on the bed
#                      wire, as softroce-conformance/native-CASE.pcapng
#
# Four beds: rxe0 talking to itself; rxe1 and rxe2 across a veth pair; rxe3 and rxe4 with softroce as the wire between
# them, which sees, loses and forges their packets; and siw0, which connects only through the RDMA CM and so runs the
# cases that connect nothing. Known deviations stand in ../../conformance/tolerances; a case that fails
# otherwise, or deviates otherwise, fails. Needs root, Debian 12 amd64, and on its first run a mirror that apt-get can
# reach.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
vm=() filter=() only='' reports='' softroce='' guest=''
while [ $# -gt 0 ]; do
  case $1 in
    --cache|--kernel) vm+=("$1" "$2"); shift 2;;
    --filter) filter=(--filter "$2"); shift 2;;
    --only) only=$2; shift 2;;
    --reports) reports=$(realpath -m "$2"); shift 2;;
    --in-guest) guest=1; shift;;
    -h|--help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 0;;
    -*) echo "conformance.sh: unknown option $1 (see --help)" >&2; exit 2;;
    *) softroce=$1; shift;;
  esac
done
[ -x "$softroce" ] || { echo "conformance.sh: no program at \`$softroce\`; build it with cargo build" >&2; exit 2; }
softroce=$(realpath "$softroce")

# suite BED OPTIONS: one run of the suite; its report, and a line that sums it up.
suite() {
  local bed=$1 begun=$SECONDS status; shift
  [ -z "$only" ] || [ "$only" = "$bed" ] || return 0
  # More than the usual 15 s tells the suite that the machine is slow; not much more, since it passes with each deviation
  # that something does not come. The packets go where temporary files go.
  TMPDIR=$reports timeout 900 "$softroce" conformance --provider libibverbs --patience 16 "${filter[@]}" "$@" \
    >"$reports/$bed.txt" 2>&1
  status=$?
  echo "== $bed: status $status, $((SECONDS - begun)) s"
  tail -3 "$reports/$bed.txt"
  [ $status = 0 ] || failed=1
}

if [ -n "$guest" ]; then
  failed=0
  # What a process that ended left behind would show in the next bed's.
  rdma resource show 2>/dev/null
  suite rxe0 --device rxe0
  suite veth --device rxe1 --device rxe2
  if [ -z "$only" ] || [ "$only" = wire ]; then
    "$here/wire.sh" 4200 || failed=1
    # What the other beds run as well is left out.
    suite wire --device rxe3 --device rxe4 --wire w3,w4 --mode faults --mode raw
  fi
  suite siw0 --device siw0
  rdma resource show 2>/dev/null
  dmesg 2>/dev/null | grep -E 'WARNING|BUG:|Oops' | head
  exit $failed
fi

kept=$reports
[ -n "$reports" ] || { reports=$(mktemp -d) || exit 1; trap 'rm -rf "$reports"' EXIT; }
mkdir -p "$reports" && cd "$here" || exit 1
"$here/rxe-vm.sh" --veth 4200 --mtu 4200 --timeout 1200 "${vm[@]}" --share "$here" --share "$reports" --share "$(dirname "$softroce")" -- \
  "$here/conformance.sh" --in-guest --reports "$reports" "${filter[@]}" ${only:+--only "$only"} "$softroce"
status=$?
[ -z "$kept" ] || chmod -R a+rX "$kept"
exit $status
