#!/usr/bin/env bash
# Small changes of the engine (cargo mutants), with the conformance cases on the simulator as the judge.
#
#   .ci/mutants.sh [SHARD]   one part of all, such as 3/50 (the default is 0/50); 0/1 is everything, which takes days
#
# Fails when fewer than 85 % of those that build are noticed. The survivors stand in target/mutants/mutants.out/missed.txt.
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
shard=${1:-0/50}
out=${CARGO_TARGET_DIR:-target}/mutants
mkdir -p "$out"
# Its own first run would be of the engine's tests, and not of the judge.
cargo test -p conformance --test conformance -- sim:: || exit 1
cargo mutants --package softroce-engine --baseline skip --timeout 90 --shard "$shard" --sharding round-robin --output "$out" --no-times
case $? in
  0|2|3) ;; # All noticed; some survived; some do not end.
  *) exit 1;;
esac
count() { if [ -e "$out/mutants.out/$1.txt" ]; then wc -l < "$out/mutants.out/$1.txt"; else echo 0; fi; }
noticed=$(($(count caught) + $(count timeout)))
missed=$(count missed)
echo "$noticed noticed, $missed not, of shard $shard:"
cat "$out/mutants.out/missed.txt" 2>/dev/null
[ $((100 * noticed)) -ge $((85 * (noticed + missed))) ]
