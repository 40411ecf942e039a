#!/bin/bash
# Every RC operation between softroce on this host and the kernel's rdma_rxe in a throw-away VM.
#
#   interop.sh [--cache DIR] [--pcap FILE] PEER      PEER: the built program `peer` of the package e2e
#   interop.sh [--cache DIR] --native PEER           both ends are kernel devices: checks the run itself
#
# SEND, WRITE, READ, compare-and-swap and fetch-and-add, 1,000 messages each in both directions, ACK timeout
# exponent 20. Fails on a wrong byte, a bad completion, and if either end sent anything twice. PEER runs as an
# unprivileged user. Needs root, Debian 12 amd64, and on its first run a mirror that apt-get can reach.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
cache=() pcap=() peer='' native=''
while [ $# -gt 0 ]; do
  case $1 in
    --cache) cache=(--cache "$2"); shift 2;;
    --pcap) pcap=(--pcap "$2"); shift 2;;
    --native) native=1; shift;;
    -h|--help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 0;;
    -*) echo "interop.sh: unknown option $1 (see --help)" >&2; exit 2;;
    *) peer=$1; shift;;
  esac
done
vm=("$here/rxe-vm.sh" --no-siw --share "$here" --timeout 400 "${cache[@]}")
python=/usr/bin/python3   # the one that the guest's pyverbs belongs to

[ -x "$peer" ] || { echo "interop.sh: no program at \`$peer\`; build it with cargo build -p e2e" >&2; exit 2; }
peer=$(realpath "$peer")
cd "$here" || exit 1
if [ -n "$native" ]; then
  # rxe1 faces rxe2 inside the guest; PEER takes the first device, which is rxe1 when rxe0 is gone, and its GID 0.
  exec "${vm[@]}" --share "$(dirname "$peer")" --veth 1500 -- bash -c "
    rdma link del rxe0
    '$peer' --provider native interop --listen 203.0.113.1:18600 > /tmp/listener 2>&1 & listener=\$!
    $python interop_peer.py --device rxe2 --gid-index 0 --call 203.0.113.1; status=\$?
    wait \$listener || { status=1; cat /tmp/listener; }
    exit \$status"
fi
printf -v host '%q --provider softroce interop --listen 192.0.2.1:18600' "$peer"
exec "${vm[@]}" --netns "softroce-rxe-$$" "${pcap[@]}" \
  --host-cmd "exec setpriv --reuid 65534 --regid 65534 --clear-groups -- $host" \
  -- $python interop_peer.py --call 192.0.2.1
