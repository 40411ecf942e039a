#!/bin/bash
# Every RC operation between softroce on this host and the kernel's rdma_rxe in a throw-away VM.
#
#   interop.sh [--cache DIR] [--pcap FILE] PEER      PEER: the built program `peer` of the package e2e
#   interop.sh [--cache DIR] --self-check            both ends are kernel devices: checks the run itself
#
# SEND, WRITE, READ, compare-and-swap and fetch-and-add, 1,000 messages each in both directions, ACK timeout
# exponent 20. Fails on a wrong byte, a bad completion, and if either end sent anything twice. PEER runs as an
# unprivileged user. Needs root, Debian 12 amd64, and on its first run a mirror that apt-get can reach.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
cache=() pcap=() peer='' self_check=''
while [ $# -gt 0 ]; do
  case $1 in
    --cache) cache=(--cache "$2"); shift 2;;
    --pcap) pcap=(--pcap "$2"); shift 2;;
    --self-check) self_check=1; shift;;
    -h|--help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 0;;
    -*) echo "interop.sh: unknown option $1 (see --help)" >&2; exit 2;;
    *) peer=$1; shift;;
  esac
done
vm=("$here/rxe-vm.sh" --no-siw --share "$here" --timeout 400 "${cache[@]}")
python=/usr/bin/python3   # the one that the guest's pyverbs belongs to

cd "$here" || exit 1
if [ -n "$self_check" ]; then
  exec "${vm[@]}" --veth 1500 -- bash -c "
    $python interop_peer.py --device rxe2 --listen 203.0.113.2 > /tmp/listener 2>&1 & listener=\$!
    $python interop_peer.py --device rxe1 --call 203.0.113.2; status=\$?
    wait \$listener || { status=1; cat /tmp/listener; }
    exit \$status"
fi
[ -x "$peer" ] || { echo "interop.sh: no program at \`$peer\`; build it with cargo build -p e2e" >&2; exit 2; }
printf -v host '%q interop --listen 192.0.2.1:18600' "$(realpath "$peer")"
exec "${vm[@]}" --netns "softroce-rxe-$$" "${pcap[@]}" \
  --host-cmd "exec setpriv --reuid 65534 --regid 65534 --clear-groups -- $host" \
  -- $python interop_peer.py --call 192.0.2.1
