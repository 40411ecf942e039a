#!/bin/bash
# The RDMA CM between softroce on this host and the kernel's rdma_rxe in a throw-away VM, on one wire, both roles.
#
#   cm.sh [options] DIRECTORY                DIRECTORY: where `softroce` and its shared objects were built
#     --cache DIR      of the VM
#     --kernel PKG     the guest's kernel image package
#     --only WORDS     only programs with this in their command line
#     --pcap FILE      keep the capture of the whole wire
#     --patience S     seconds for a program [60]
#
# Programs of rdma-core and perftest as they are: on the host under `softroce run` as an unprivileged user, in the guest
# on the kernel's own CM. Each is played twice, with its listener here and there. A program passes when both its ends
# return 0 in time. Fails too when tshark calls a packet malformed. Needs root, Debian 12 amd64 with rdmacm-utils and
# perftest, and on its first run a mirror that apt-get can reach.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
vm=() only='' pcap='' built='' place=outside shared='' patience=60
while [ $# -gt 0 ]; do
  case $1 in
    --cache|--kernel) vm+=("$1" "$2"); shift 2;;
    --only) only=$2; shift 2;;
    --pcap) pcap=$(realpath -m "$2"); shift 2;;
    --patience) patience=$2; shift 2;;
    --end) place=$2 shared=$3; shift 3;;
    -h|--help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 0;;
    -*) echo "cm.sh: unknown option $1 (see --help)" >&2; exit 2;;
    *) built=$1; shift;;
  esac
done
[ -x "$built/softroce" ] || { echo "cm.sh: no softroce in \`$built\` (see --help)" >&2; exit 2; }
built=$(realpath "$built")
readonly host_address=192.0.2.1 guest_address=192.0.2.2

# Listener's and caller's command line. PORT and ADDRESS (the listener's) are filled in; udaddy has a port of its own.
programs=(
  "rping -s -a ADDRESS -p PORT -C 10 -V -S 64 | rping -c -a ADDRESS -p PORT -C 10 -V -S 64"
  "rping -s -a ADDRESS -p PORT -C 10 -V -S 4000 | rping -c -a ADDRESS -p PORT -C 10 -V -S 4000"
  "ucmatose -b ADDRESS -p PORT | ucmatose -s ADDRESS -p PORT"
  "ucmatose -b ADDRESS -p PORT -c 20 -C 5 -S 1000 | ucmatose -s ADDRESS -p PORT -c 20 -C 5 -S 1000"
  "udaddy -b ADDRESS | udaddy -s ADDRESS"
  "udaddy -b ADDRESS -c 5 -C 4 -S 500 | udaddy -s ADDRESS -c 5 -C 4 -S 500"
  "ib_send_bw -R -F -p PORT -n 100 -s 4096 | ib_send_bw -R -F -p PORT -n 100 -s 4096 ADDRESS"
  "ib_send_lat -R -F -p PORT -n 100 | ib_send_lat -R -F -p PORT -n 100 ADDRESS"
  "ib_write_bw -R -F -p PORT -n 100 -s 65536 | ib_write_bw -R -F -p PORT -n 100 -s 65536 ADDRESS"
  "ib_read_bw -R -F -p PORT -n 100 -s 65536 | ib_read_bw -R -F -p PORT -n 100 -s 65536 ADDRESS"
)

attempts() { [[ $1 == ib_* ]] && echo 1 2 3 || echo 1; }
# ends NAME: what the listener and the caller returned.
ends() {
  local end
  for end in listener caller; do printf '%s ' "$(cat "$shared/$1.$end.status" 2>/dev/null || echo none)"; done
}

# An end's part of one program: `listen NAME COMMAND`, `call NAME COMMAND`. Files in a folder that both see tell how far
# the other end is.
until_there() {
  for _ in $(seq $((patience * 3))); do [ -e "$shared/$1" ] && return; sleep 0.5; done
  echo "the other end never came to $1" >>"$shared/$2"
  return 1
}
# A caller that comes too early is rejected, and perftest then trips over what it has freed. It connects twice, and the
# second time its own ends race so: the caller may ask before the listener listens again. Hence it has three attempts.
until_listening() {
  for _ in {1..50}; do
    # softroce claims a port by a socket of this name; the kernel lists what it listens for.
    case $place in
      host) grep -qa 'softroce/.*/cm/' /proc/net/unix && break;;
      guest) rdma resource show cm_id 2>/dev/null | grep -q LISTEN && break;;
    esac
    sleep 0.2
  done
  sleep 0.5
}
listen() {
  local name=$1; shift
  timeout "$patience" "${run[@]}" "$@" >"$shared/$name.listener" 2>&1 & local pid=$!
  until_listening
  touch "$shared/$name.listens"
  wait $pid
  echo $? >"$shared/$name.listener.status"
  until_there "$name.caller.status" "$name.listener"
}
call() {
  local name=$1; shift
  until_there "$name.listens" "$name.caller" || return
  timeout "$patience" "${run[@]}" "$@" >"$shared/$name.caller" 2>&1
  echo $? >"$shared/$name.caller.status"
  until_there "$name.listener.status" "$name.caller"
}

if [ "$place" != outside ]; then
  case $place in
    host) run=(setpriv --reuid 65534 --regid 65534 --clear-groups -- "$built/softroce" run --device-address $host_address --);;
    guest) run=();;
  esac
  if [ "$place" = host ]; then until_there guest.ready host.log; else touch "$shared/guest.ready"; fi
  port=20100
  for program in "${programs[@]}"; do
    [[ $program == *"$only"* ]] || continue
    for listener in host guest; do
      port=$((port + 1))
      address=${listener}_address
      for attempt in $(attempts "$program"); do
        name=$port.$attempt
        line=${program//PORT/$((port + 1000 * attempt))}; line=${line//ADDRESS/${!address}}
        if [ "$place" = $listener ]; then
          # shellcheck disable=SC2086 # words of a command line
          listen $name ${line%% | *}
        else
          # shellcheck disable=SC2086
          call $name ${line##* | }
        fi
        [ "$(ends $name)" != "0 0 " ] || break
      done
    done
  done
  exit 0
fi

shared=$(mktemp -d) || exit 1
trap 'rm -rf "$shared"' EXIT
chmod 755 "$shared"
capture=${pcap:-$shared/wire.pcap}
again=("$here/cm.sh" --patience "$patience" ${only:+--only "$only"})
printf -v host '%q ' "${again[@]}" --end host "$shared" "$built"
cd "$here" || exit 1
begun=$SECONDS
"$here/rxe-vm.sh" --no-siw --mtu 4200 --timeout $((patience * 15)) "${vm[@]}" --share "$here" --share "$built" --share "$shared" \
  --netns "softroce-cm-$$" --pcap "$capture" --host-cmd "exec $host" \
  -- "${again[@]}" --end guest "$shared" "$built"
status=$?
[ $status = 0 ] || echo "cm.sh: the guest ended with status $status"

echo "| program | softroce listens | rxe listens |"
echo "|---|---|---|"
port=20100
for program in "${programs[@]}"; do
  [[ $program == *"$only"* ]] || continue
  cells=''
  for listener in host guest; do
    port=$((port + 1))
    for attempt in $(attempts "$program"); do
      name=$port.$attempt
      [ "$(ends $name)" != "0 0 " ] || break
    done
    if [ "$(ends $name)" = "0 0 " ]; then
      cells+=" ok$([ "$attempt" = 1 ] || echo ", attempt $attempt") |"
      continue
    fi
    cells+=" status $(ends $name)|"
    status=1
    { echo "== $program, $listener listens"; head -n 12 "$shared/$name.listener" "$shared/$name.caller"; } >>"$shared/failures" 2>&1
  done
  words=${program%% | *}; words=${words/ -s -a ADDRESS/}; words=${words/ -b ADDRESS/}; words=${words/ -F/}
  echo "| \`${words/ -p PORT/}\` |$cells"
done
[ ! -e "$shared/failures" ] || cat "$shared/failures"
if command -v tshark >/dev/null; then
  packets=$(tshark -n -r "$capture" -Y infiniband.bth 2>/dev/null | wc -l)
  malformed=$(tshark -n -r "$capture" --disable-protocol rpcordma --disable-protocol infiniband.eoib -Y _ws.malformed 2>/dev/null | tee "$shared/malformed" | wc -l)
  echo "on the wire: $packets packets of RoCEv2, $malformed malformed, says tshark"
  [ "$packets" -gt 0 ] && [ "$malformed" = 0 ] || { status=1; head "$shared/malformed"; }
fi
echo "cm.sh: $((SECONDS - begun)) s, status $status"
exit $status
