#!/bin/bash
# How fast perftest is on softroce and on the kernel's rdma_rxe, in one throw-away VM.
#
#   ratios.sh [--cache DIR] [--rounds N] DIRECTORY     DIRECTORY: where `softroce` and its shared objects were built
#
# Prints a table in Markdown: for each tool and size what softroce measures on the loopback interface of a namespace of
# its own, what rxe measures from rxe0 to itself (which it cuts short) and across a veth pair, and the ratios; of several
# rounds the median. Both ends of every pair share the guest's two processors. Emulated they are 10 to 50 times slower
# than real ones: only the ratios mean something. Needs root, Debian 12 amd64, and for the VM's first run a mirror that
# apt-get can reach.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
cache=() rounds=3 built='' guest=''
while [ $# -gt 0 ]; do
  case $1 in
    --cache) cache=(--cache "$2"); shift 2;;
    --rounds) rounds=$2; shift 2;;
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
  exec "$here/rxe-vm.sh" --no-siw --mtu 4200 --veth 4200 --timeout 1500 "${cache[@]}" --share "$here" --share "$built" -- \
    "$here/ratios.sh" --in-guest --rounds "$rounds" "$built"
fi

ip netns add softroce && ip -n softroce link set lo up || exit 1
port=20000
own=(ip netns exec softroce setpriv --reuid 65534 --regid 65534 --clear-groups -- "$built/softroce" run --)

# pair BED TOOL ARGS: the client's figure, which is the typical latency in µs or the average bandwidth in MB/s.
pair() {
  local bed=$1 server client address; shift
  port=$((port + 1))
  case $bed in
    softroce) server=("${own[@]}" "$@" -d softroce0 -x 0) client=("${server[@]}") address=127.0.0.1;;
    rxe) server=("$@" -d rxe0 -x 1) client=("${server[@]}") address=192.0.2.2;;
    wire) server=("$@" -d rxe2 -x 1) client=("$@" -d rxe1 -x 1) address=203.0.113.2;;
  esac
  timeout 90 "${server[@]}" -F -p $port >/tmp/server 2>&1 & local pid=$!
  sleep 3 # An emulated server takes a second or two until it listens.
  timeout 90 "${client[@]}" -F -p $port $address >/tmp/client 2>&1 </dev/null
  kill $pid 2>/dev/null; wait $pid 2>/dev/null
  # The line below the heading: of a latency the typical value, of a bandwidth the average.
  awk -v lat="${1%_lat}" -v tool="$1" '/#bytes/ { getline; print (lat != tool) ? $5 : $4; found = 1; exit }
    END { if (!found) print "-" }' /tmp/client
}

median() { sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

cases=(
  "ib_send_lat -s 8 -n 500" "ib_send_lat -s 4096 -n 500" "ib_write_lat -s 8 -n 500" "ib_write_lat -s 4096 -n 500"
  "ib_read_lat -s 8 -n 500" "ib_atomic_lat -n 500"
  "ib_send_bw -s 64 -n 2000" "ib_send_bw -s 4096 -n 1000" "ib_send_bw -s 65536 -n 200" "ib_send_bw -s 1048576 -n 30"
  "ib_write_bw -s 64 -n 2000" "ib_write_bw -s 4096 -n 1000" "ib_write_bw -s 65536 -n 200" "ib_write_bw -s 1048576 -n 30"
  "ib_read_bw -s 65536 -n 200"
)
echo "# $(uname -r), $RXEVM_ACCEL, $(nproc) processors; medians of $rounds rounds"
echo
echo "| tool | softroce | rxe0 to itself | rxe across veth | softroce : rxe0 | softroce : veth |"
echo "|---|---|---|---|---|---|"
for case in "${cases[@]}"; do
  for bed in softroce rxe wire; do : >"/tmp/$bed"; done
  for _ in $(seq "$rounds"); do
    # shellcheck disable=SC2086 # words of a command line
    for bed in softroce rxe wire; do pair $bed $case >>"/tmp/$bed"; done
  done
  unit=MB/s; [[ $case != *_lat* ]] || unit=µs
  awk -v name="${case% -n *}" -v unit=$unit -v s="$(median </tmp/softroce)" -v r="$(median </tmp/rxe)" -v w="$(median </tmp/wire)" \
    'function ratio(a, b) { return (a > 0 && b > 0) ? sprintf("%.2f", a / b) : "-" }
     BEGIN { printf "| `%s` | %s %s | %s %s | %s %s | %s | %s |\n", name, s, unit, r, unit, w, unit, ratio(s, r), ratio(s, w) }'
done
