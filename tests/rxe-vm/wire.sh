#!/bin/bash
# In the guest: two rxe devices, each on one end of a veth pair of its own. The other ends, w3 and w4, are joined by nobody
# but `softroce conformance --wire w3,w4`, which so is the wire between the devices.
#
#   wire.sh [MTU]
#
# rxe (up to 6.1 at least) works in the initial network namespace only, so both devices are there; policy routing makes
# packets between the two local addresses leave by their interfaces.
set -u
mtu=${1:-1500}
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
for i in 3 4; do
  ip link add v$i type veth peer name w$i || exit 1
  ip link set v$i address 02:00:5e:00:53:0$i
  # What the kernel has not cut and summed up itself cannot be carried further by hand.
  ethtool -K v$i tx off tso off gso off gro off >/dev/null 2>&1
  for dev in v$i w$i; do ip link set $dev mtu "$mtu" up; done
  echo 1 > /proc/sys/net/ipv6/conf/w$i/disable_ipv6
  echo 1 > /proc/sys/net/ipv4/conf/v$i/accept_local
  echo 0 > /proc/sys/net/ipv4/conf/v$i/rp_filter
  ip addr add 198.18.0.$i/24 dev v$i
done
for i in 3 4; do
  peer=$((7 - i))
  ip route add table $((i + 10)) 198.18.0.$peer dev v$i src 198.18.0.$i
  ip rule add pref 1 iif v$i lookup local
  ip rule add pref $((i + 1)) from 198.18.0.$i to 198.18.0.$peer lookup $((i + 10))
done
# The local table after those rules, not before.
ip rule show | grep -q '^1000:' || { ip rule add pref 1000 lookup local; ip rule del pref 0; }
for i in 3 4; do
  rdma link add rxe$i type rxe netdev v$i || exit 1
  for t in $(seq 50); do
    grep -qs ffff: /sys/class/infiniband/rxe$i/ports/1/gids/1 && break
    sleep .1
  done
done
rdma link | grep -E 'rxe[34]'
