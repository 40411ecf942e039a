#!/bin/bash
# The interop matrix: softroce on this host and the kernel's rdma_rxe in a throw-away VM, on one wire.
#
#   matrix.sh [options] PEER                 PEER: the built program `peer` of the package e2e
#     --cache DIR      of the VM
#     --kernel PKG     the guest's kernel image package
#     --pcap FILE      keep the capture of the whole wire
#     --only WORDS     only cases with this in their name
#     --table FILE     write the results as a table in Markdown
#
# Every operation of RC, UC and UD at sizes around the path MTU, both ends as requester and as responder; losses on
# demand, receivers that are not ready, requests that must be refused. Four times: IPv4 and IPv6, path MTU 4096 and 1024.
# ACK timeout exponent 20, since an emulated machine is slow. Fails on a wrong byte or status, on a counter of either end
# that shows trouble which the case did not make, and on a packet that tshark calls malformed. PEER runs as an
# unprivileged user on the host, and through libibverbs in the guest. Needs root, Debian 12 amd64, and on its first run a
# mirror that apt-get can reach.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
vm=() pcap='' only='' table='' peer='' place=outside results=''
while [ $# -gt 0 ]; do
  case $1 in
    --cache|--kernel) vm+=("$1" "$2"); shift 2;;
    --pcap) pcap=$(realpath -m "$2"); shift 2;;
    --only) only=$2; shift 2;;
    --table) table=$2; shift 2;;
    --on-host) place=host results=$2; shift 2;;
    --in-guest) place=guest results=$2; shift 2;;
    -h|--help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 0;;
    -*) echo "matrix.sh: unknown option $1 (see --help)" >&2; exit 2;;
    *) peer=$1; shift;;
  esac
done
[ -x "$peer" ] || { echo "matrix.sh: no program at \`$peer\`; build it with cargo build -p e2e" >&2; exit 2; }
peer=$(realpath "$peer")

# Runs of the matrix: name, the listener's address and port, path MTU, MTU of the interfaces.
runs=(
  "IPv4-4096 192.0.2.1:18601 4096 4200" "IPv6-4096 [2001:db8::1]:18602 4096 4200"
  "IPv4-1024 192.0.2.1:18603 1024 1500" "IPv6-1024 [2001:db8::1]:18604 1024 1500"
)

# The host's end: softroce listens. The tap is the guest's wire.
if [ "$place" = host ]; then
  tap=$(ip -o link show type tun | sed 's/^[0-9]*: \([^:@]*\).*/\1/')
  ip addr add 2001:db8::1/64 dev "$tap" nodad
  # Nobody sends again what UC and UD lose here.
  ip link set "$tap" txqueuelen 20000
  for run in "${runs[@]}"; do
    read -r name meeting mtu interface <<<"$run"
    ip link set "$tap" mtu "$interface"
    setpriv --reuid 65534 --regid 65534 --clear-groups -- \
      "$peer" matrix --listen "$meeting" --mtu "$mtu" ${only:+--only "$only"} >"$results/$name" 2>&1
    echo $? >"$results/$name.status"
  done
  exit 0
fi

# The guest's end: rxe calls.
if [ "$place" = guest ]; then
  failed=0
  echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
  ip addr add 2001:db8::2/64 dev eth0 nodad
  gids=/sys/class/infiniband/rxe0/ports/1/gids
  for _ in {1..50}; do
    grep -qs '^2001:0db8:0000:0000:0000:0000:0000:0002' $gids/[0-9] && break
    sleep 0.1
  done
  # rxe asks the network card for a group's frames, but nobody asks the guest's IP layer to keep them.
  /usr/bin/python3 -c 'import socket, struct, time
eth0 = socket.if_nametoindex("eth0")
v4, v6 = (socket.socket(family, socket.SOCK_DGRAM) for family in (socket.AF_INET, socket.AF_INET6))
v4.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.7.7.7") + struct.pack("=4xi", eth0))
v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, "ff05::7:7") + struct.pack("=I", eth0))
time.sleep(3600)' & member=$!
  for run in "${runs[@]}"; do
    read -r name meeting mtu interface <<<"$run"
    ip link set eth0 mtu "$interface"
    "$peer" --provider native --device rxe0 matrix --call "$meeting" >/tmp/caller 2>&1 ||
      { failed=1; echo "== $name, in the guest"; tail -3 /tmp/caller; }
  done
  kill $member
  exit $failed
fi

results=$(mktemp -d) || exit 1
trap 'rm -rf "$results"' EXIT
capture=${pcap:-$results/wire.pcap}
again=("$here/matrix.sh" ${only:+--only "$only"})
printf -v host '%q ' "${again[@]}" --on-host "$results" "$peer"
chmod 755 "$results"
cd "$here" || exit 1
begun=$SECONDS
"$here/rxe-vm.sh" --no-siw --mtu 4200 --timeout 900 "${vm[@]}" --share "$here" --share "$(dirname "$peer")" \
  --netns "softroce-matrix-$$" --pcap "$capture" --host-cmd "exec $host" \
  -- "${again[@]}" --in-guest /nowhere "$peer"
status=$?
[ $status = 0 ] || echo "matrix.sh: the guest ended with status $status"

# The host's results side by side.
{
  echo "| case | asks | $(for run in "${runs[@]}"; do printf '%s | ' "${run%% *}"; done)"
  echo "|---|---|$(for _ in "${runs[@]}"; do printf -- '---|'; done)"
  files=()
  for run in "${runs[@]}"; do files+=("$results/${run%% *}"); touch "${files[-1]}"; done
  awk -v files=${#files[@]} '
    FNR == 1 { column++ }
    / \| (listener|caller|both) / {
      match($0, / \| (listener|caller|both) +/)
      name = substr($0, 1, RSTART - 1); asks = substr($0, RSTART + 3, RLENGTH - 3); sub(/ +$/, "", asks)
      sub("listener", "softroce", asks); sub("caller", "rxe", asks)
      key = name " | " asks
      if (!(key in seen)) { seen[key]; order[++n] = key }
      cell[key, column] = substr($0, RSTART + RLENGTH)
    }
    END {
      for (i = 1; i <= n; i++) {
        line = "| " order[i] " |"
        for (c = 1; c <= files; c++) line = line " " cell[order[i], c] " |"
        print line
      }
    }' "${files[@]}"
} >"$results/table"
[ -z "$table" ] || cp "$results/table" "$table"
cat "$results/table"
for run in "${runs[@]}"; do
  name=${run%% *}
  ended=$(cat "$results/$name.status" 2>/dev/null || echo none)
  echo "$name: $(tail -1 "$results/$name")"
  [ "$ended" = 0 ] || { status=1; echo "$name: status of the host's end: $ended"; }
done

# Two heuristic dissectors take payload bytes for their protocols and call them malformed.
if command -v tshark >/dev/null; then
  quiet=(--disable-protocol rpcordma --disable-protocol infiniband.eoib)
  packets=$(tshark -n -r "$capture" "${quiet[@]}" -Y infiniband.bth 2>/dev/null | wc -l)
  malformed=$(tshark -n -r "$capture" "${quiet[@]}" -Y _ws.malformed 2>/dev/null | tee "$results/malformed" | wc -l)
  echo "on the wire: $packets packets of RoCEv2, $malformed malformed, says tshark"
  [ "$packets" -gt 0 ] && [ "$malformed" = 0 ] || { status=1; head "$results/malformed"; }
else
  echo "on the wire: not looked at, tshark is not installed"
fi
echo "matrix.sh: $((SECONDS - begun)) s, status $status"
exit $status
