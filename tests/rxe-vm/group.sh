#!/bin/bash
# A multicast group of four: three processes of softroce on this host, and the kernel's rdma_rxe in a throw-away VM.
#
#   group.sh [--cache DIR] [--pcap FILE] PEER        PEER: the built program `peer` of the package e2e
#
# One process on the host sends 1,000 messages to 239.7.7.7; it, the two others and the guest must each receive each of
# them once. Then one of those who called leaves, and gets none of 100 messages more. PEER runs as an unprivileged
# user, and in the guest through libibverbs on rxe0. Needs root, Debian 12 amd64, and on its first run a mirror that
# apt-get can reach.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
cache=() pcap=() peer=''
while [ $# -gt 0 ]; do
  case $1 in
    --cache) cache=(--cache "$2"); shift 2;;
    --pcap) pcap=(--pcap "$2"); shift 2;;
    -h|--help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 0;;
    -*) echo "group.sh: unknown option $1 (see --help)" >&2; exit 2;;
    *) peer=$1; shift;;
  esac
done
[ -x "$peer" ] || { echo "group.sh: no program at \`$peer\`; build it with cargo build -p e2e" >&2; exit 2; }
peer=$(realpath "$peer")
cd "$here" || exit 1
group=239.7.7.7
meeting=192.0.2.1:18700
user="setpriv --reuid 65534 --regid 65534 --clear-groups --"
host="$user '$peer' group --listen $meeting --members 3 --group $group & sender=\$!
  $user '$peer' group --call $meeting & one=\$!
  $user '$peer' group --call $meeting & other=\$!
  wait \$sender && wait \$one && wait \$other"
# rxe asks the network card for a group's frames, but nobody asks the guest's IP layer to keep them: an address with
# `autojoin` does.
exec "$here/rxe-vm.sh" --no-siw --share "$(dirname "$peer")" --timeout 400 "${cache[@]}" \
  --netns "softroce-group-$$" "${pcap[@]}" --host-cmd "$host" \
  -- bash -c "ip addr add $group/32 dev eth0 autojoin && exec '$peer' --provider native group --call $meeting"
