#!/bin/bash
# How fast softroce and the kernel's rdma_rxe are across the same wire, in one throw-away VM, in turns.
#
#   ratios.sh [options] DIRECTORY            DIRECTORY: where `softroce` and its shared objects were built
#     --cache DIR      of the VM
#     --kernel PKG     the guest's kernel image package
#     --rounds N       rounds of all measurements [3]
#     --only WORDS     only measurements with this in their command line
#     --all            atomics, UC and UD too
#
# Prints a table in Markdown: medians of what perftest measures with both ends on softroce, and with both on rxe. The wire
# is one veth pair, interface MTU 4200, path MTU 4096: its ends are in the guest's first network namespace with a rxe
# device each, or in two namespaces with an unprivileged process of softroce each, and change between the two before each
# measurement. Both ends of every pair share the guest's two processors. Emulated they are 10 to 50 times slower than real
# ones: only the ratios mean something. Needs root, Debian 12 amd64, and for the VM's first run a mirror that apt-get can
# reach.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
vm=() rounds=3 only='' all='' built='' guest=''
while [ $# -gt 0 ]; do
  case $1 in
    --cache|--kernel) vm+=("$1" "$2"); shift 2;;
    --rounds) rounds=$2; shift 2;;
    --only) only=$2; shift 2;;
    --all) all=1; shift;;
    --in-guest) guest=1; shift;;
    -h|--help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 0;;
    -*) echo "ratios.sh: unknown option $1 (see --help)" >&2; exit 2;;
    *) built=$1; shift;;
  esac
done
[ -x "$built/softroce" ] || { echo "ratios.sh: no softroce in \`$built\` (see --help)" >&2; exit 2; }
built=$(realpath "$built")

if [ -z "$guest" ]; then
  cd "$here" || exit 1
  exec "$here/rxe-vm.sh" --no-siw --veth 4200 --timeout 2400 "${vm[@]}" --share "$here" --share "$built" -- \
    "$here/ratios.sh" --in-guest --rounds "$rounds" ${all:+--all} ${only:+--only "$only"} "$built"
fi

for end in 1 2; do
  ip netns add end$end && ip -n end$end link set lo up || exit 1
done
[ ! -d /sys/class/infiniband/rxe0 ] || rdma link del rxe0

owner=rxe
other() { [ "$1" = rxe ] && echo softroce || echo rxe; }
# give_to BED: the wire's ends, if another has them.
give_to() {
  [ $owner != "$1" ] || return
  owner=$1
  give_to_$owner
}

# The wire's ends into two namespaces, without rxe.
give_to_softroce() {
  local end
  for end in 1 2; do
    rdma link del rxe$end 2>/dev/null
    ip link set v$end netns end$end
    ip -n end$end addr add 203.0.113.$end/24 dev v$end
    ip -n end$end link set v$end up
  done
}

# The wire's ends back, with a rxe device on each; policy routing has packets between them cross the wire.
give_to_rxe() {
  local end other
  for end in 1 2; do
    ip -n end$end link set v$end netns 1
    ip addr add 203.0.113.$end/24 dev v$end
    ip link set v$end up
    echo 1 >/proc/sys/net/ipv4/conf/v$end/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/v$end/rp_filter
  done
  for end in 1 2; do
    other=$((3 - end))
    ip route add table 1$end 203.0.113.$other dev v$end src 203.0.113.$end
    rdma link add rxe$end type rxe netdev v$end
  done
  for end in 1 2; do
    for _ in {1..50}; do grep -qs ffff: /sys/class/infiniband/rxe$end/ports/1/gids/1 && break; sleep 0.1; done
  done
}

# until_listening BED: until the server does, which emulated takes a second or two.
until_listening() {
  local within=() socket
  [ "$1" = rxe ] || within=(ip netns exec end2)
  printf -v socket ':%04X .* 0A ' $port
  for _ in {1..50}; do
    "${within[@]}" grep -qs "$socket" /proc/net/tcp /proc/net/tcp6 && return
    sleep 0.2
  done
}

port=20000
# pair BED TOOL ARGS: the client's figure, which is the typical latency in µs or the average bandwidth in MB/s.
pair() {
  local bed=$1 server client; shift
  port=$((port + 1))
  if [ "$bed" = softroce ]; then
    local user=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
    server=(ip netns exec end2 "${user[@]}" "$built/softroce" run --device-address 203.0.113.2 -- "$@" -d softroce0 -x 0)
    client=(ip netns exec end1 "${user[@]}" "$built/softroce" run --device-address 203.0.113.1 -- "$@" -d softroce0 -x 0)
  else
    server=("$@" -d rxe2 -x 1) client=("$@" -d rxe1 -x 1)
  fi
  timeout 90 "${server[@]}" -F -p $port >/tmp/server 2>&1 & local pid=$!
  until_listening "$bed"
  timeout 90 "${client[@]}" -F -p $port 203.0.113.2 >/tmp/client 2>&1 </dev/null
  kill $pid 2>/dev/null; wait $pid 2>/dev/null
  # The line below the heading: of a latency the typical value, of a bandwidth the average.
  awk -v lat="${1%_lat}" -v tool="$1" '/#bytes/ { getline; print (lat != tool) ? $5 : $4; found = 1; exit }
    END { if (!found) print "-" }' /tmp/client
}

median() { grep -v '^-$' | sort -g | awk '{ a[NR] = $1 } END { print NR ? a[int((NR + 1) / 2)] : "-" }'; }

# So many messages that each takes a second or so: a connection begins slowly, and that is not what is compared.
measurements=(
  "ib_send_lat -s 8 -n 3000" "ib_write_lat -s 8 -n 3000" "ib_read_lat -s 8 -n 3000"
  "ib_send_bw -s 4096 -n 10000" "ib_write_bw -s 4096 -n 10000" "ib_read_bw -s 4096 -n 10000"
  "ib_send_bw -s 65536 -n 2000" "ib_write_bw -s 65536 -n 2000" "ib_read_bw -s 65536 -n 2000"
  "ib_send_bw -s 1048576 -n 128" "ib_write_bw -s 1048576 -n 128" "ib_read_bw -s 1048576 -n 128"
)
[ -z "$all" ] || measurements+=(
  "ib_atomic_lat -n 3000" "ib_atomic_bw -n 5000" "ib_write_lat -c UC -s 8 -n 3000" "ib_write_bw -c UC -s 65536 -n 2000"
  "ib_send_lat -c UD -s 8 -n 3000" "ib_send_bw -c UD -s 4096 -n 5000"
)
echo "# $(uname -r), $RXEVM_ACCEL, $(nproc) processors; medians of $rounds rounds"
echo
echo "| tool | softroce | rxe | softroce : rxe |"
echo "|---|---|---|---|"
for measurement in "${measurements[@]}"; do
  [[ $measurement == *"$only"* ]] || continue
  : >/tmp/softroce; : >/tmp/rxe
  for _ in $(seq "$rounds"); do
    # In turns, and who was last begins: the wire changes hands once a round.
    for bed in $owner $(other $owner); do
      give_to $bed
      # shellcheck disable=SC2086 # words of a command line
      pair $bed $measurement >>/tmp/$bed
    done
  done
  unit=MB/s; [[ $measurement != *_lat* ]] || unit=µs
  awk -v name="${measurement% -n *}" -v unit=$unit -v s="$(median </tmp/softroce)" -v r="$(median </tmp/rxe)" \
    'BEGIN { printf "| `%s` | %s %s | %s %s | %s |\n", name, s, unit, r, unit, (s > 0 && r > 0) ? sprintf("%.2f", s / r) : "-" }'
done
