#!/bin/bash
# The whole rig against the kernel's soft RDMA, in one command: the conformance suite on rxe and siw in a throw-away VM,
# then the interop matrix between rxe there and softroce here.
#
#   rig.sh [options] SOFTROCE PEER           the built command, and the built program `peer` of the package e2e
#     --cache DIR      of the VM
#     --kernel PKG     the guest's kernel image package
#     --reports DIR    keep the suite's reports, the matrix as a table and the capture of its wire here
#     --can-run        only fill the VM's cache; status 77 and the reason where the rig cannot run
#
# Ends within 20 minutes on an emulated machine. Needs root, Debian 12 amd64, and on its first run a mirror that apt-get
# can reach.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
vm=() reports='' only_can='' built=()
while [ $# -gt 0 ]; do
  case $1 in
    --cache|--kernel) vm+=("$1" "$2"); shift 2;;
    --reports) reports=$(realpath -m "$2"); shift 2;;
    --can-run) only_can=1; shift;;
    -h|--help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 0;;
    -*) echo "rig.sh: unknown option $1 (see --help)" >&2; exit 2;;
    *) built+=("$1"); shift;;
  esac
done

cannot() { echo "$*"; exit 77; }
[ "$(id -u)" = 0 ] || cannot "only root can start the VM with a network of its own"
[ "$(uname -m)" = x86_64 ] && grep -qx VERSION_CODENAME=bookworm /etc/os-release 2>/dev/null ||
  cannot "the VM needs Debian 12 on x86-64"
[ -e /dev/net/tun ] || cannot "there is no /dev/net/tun"
said=$("$here/rxe-vm.sh" "${vm[@]}" --setup-only 2>&1) || cannot "the VM cannot be set up: $(tail -1 <<<"$said")"
[ -z "$only_can" ] || exit 0

[ ${#built[@]} = 2 ] || { echo "rig.sh: needs two programs, SOFTROCE and PEER (see --help)" >&2; exit 2; }
[ -n "$reports" ] || { reports=$(mktemp -d) || exit 1; trap 'rm -rf "$reports"' EXIT; }
mkdir -p "$reports" || exit 1
begun=$SECONDS failed=0
echo "The conformance suite on rxe and siw"
"$here/conformance.sh" "${vm[@]}" --reports "$reports" "${built[0]}" || failed=1
printf '\nThe interop matrix\n'
"$here/matrix.sh" "${vm[@]}" --table "$reports/matrix.md" --pcap "$reports/matrix.pcap" "${built[1]}" || failed=1
printf '\nrig.sh: %d s, status %d\n' $((SECONDS - begun)) $failed
exit $failed
