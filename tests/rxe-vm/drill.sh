#!/bin/bash
# The scripts of conformance/drill against the kernel's rdma_rxe in a throw-away VM: the host plays, rxe0 answers.
#
#   drill.sh [--cache DIR] [--kernel PKG] [--renew DIR] SOFTROCE [SCRIPT...]      SOFTROCE: the built command
#     --renew DIR      the captures that DIR has are replaced by this run's (../data/drill-rxe-6.1)
#
# Prints how each script ended, and for those that did not run as they say, line, column, what was seen and the packets;
# a pcapng of each lies in the folder after "packets:". The status is 0 when all scripts were tried, whatever came of
# them: what rxe does otherwise is in docs/rxe.md. Needs root, Debian 12 amd64, and on its first run a mirror that apt-get
# can reach.
set -u
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
options=() renew='' softroce='' scripts=()
while [ $# -gt 0 ]; do
  case $1 in
    --cache|--kernel) options+=("$1" "$2"); shift 2;;
    --renew) renew=$(realpath "$2"); shift 2;;
    -h|--help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 0;;
    -*) echo "drill.sh: unknown option $1 (see --help)" >&2; exit 2;;
    *) if [ -z "$softroce" ]; then softroce=$1; else scripts+=("$(realpath "$1")"); fi; shift;;
  esac
done
[ -x "$softroce" ] || { echo "drill.sh: no program at \`$softroce\`; build it with cargo build -p softroce-cli" >&2; exit 2; }
softroce=$(realpath "$softroce")
[ ${#scripts[@]} -gt 0 ] || scripts=("$here"/../../conformance/drill/scripts/*.drill)
# Scripts that need virtual time are not tried, and so never call the agent.
tried=() skipped=0
for script in "${scripts[@]}"; do
  if grep -q '^only_sim' "$script"; then skipped=$((skipped + 1)); else tried+=("$(realpath "$script")"); fi
done
out=$(mktemp -d) || exit 1
printf '%s\n' "${tried[@]}" > "$out/list"
# The host's half: waits for the agent in the guest, then plays one script after another.
cat > "$out/play" <<END
while read -r script; do
  name=\$(basename "\$script" .drill)
  for attempt in \$(seq 100); do
    '$softroce' drill --target 192.0.2.2 --from 192.0.2.1 --capture '$out'/"\$name".pcapng "\$script" > '$out'/"\$name".txt 2>&1
    grep -q 'no agent at' '$out'/"\$name".txt || break
    sleep 2
  done
done < '$out/list'
END
cd "$here" || exit 1
"$here/rxe-vm.sh" --no-siw --share "$(dirname "$softroce")" --timeout 600 "${options[@]}" \
  --netns "softroce-drill-$$" --host-cmd "bash '$out/play'" \
  -- "$softroce" drill --serve 192.0.2.2 --libibverbs rxe0 --scripts-served ${#tried[@]}
status=$?
pass=0 otherwise=0 untold=0
for script in "${tried[@]}"; do
  name=$(basename "$script" .drill)
  if grep -qs '^1 scripts: 1 pass' "$out/$name.txt"; then
    pass=$((pass + 1)); printf '%-30s pass\n' "$name"
  elif [ -s "$out/$name.txt" ]; then
    otherwise=$((otherwise + 1)); printf '%-30s OTHERWISE\n' "$name"; sed 's/^/    /' "$out/$name.txt"
  else
    untold=$((untold + 1)); printf '%-30s not tried\n' "$name"
  fi
done
if [ -n "$renew" ]; then
  for capture in "$renew"/*.pcapng; do
    [ ! -s "$out/${capture##*/}" ] || cp "$out/${capture##*/}" "$capture"
  done
fi
echo "rxe: ${#tried[@]} scripts: $pass pass, $otherwise otherwise, $untold not tried; $skipped need virtual time; packets: $out"
[ "$status" = 0 ] && [ "$untold" = 0 ]
