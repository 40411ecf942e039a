#!/usr/bin/env bash
# Small changes of the engine (cargo mutants), with the conformance cases on the simulator as the judge.
#
#   .ci/mutants.sh [COUNT] [SEED]   a random sample of so many (the default is 200); all of them with COUNT "all"
#
# What is left out, and why, stands in .cargo/mutants.toml; docs/mutants.md says more. Prints the share of those that
# build that were noticed, with the 95 % interval of a sample (Wilson), and the others by name. Fails when fewer than
# 85 % were noticed. SOFTROCE_MUTANTS_JOBS (the default is 2) copies of the tree are built at once.
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
count=${1:-200}
seed=${2:-$(date +%s)}
jobs=${SOFTROCE_MUTANTS_JOBS:-2}
out=${CARGO_TARGET_DIR:-target}/mutants
mkdir -p "$out"

# Its own first run would be of the engine's tests, and not of the judge.
cargo test --profile mutants -p conformance --no-default-features --features sim --test judge || exit 1

all=$(cargo mutants --package softroce-engine --list --line-col=true) || exit 1
if [ "$count" = all ]; then
  sample=$all
else
  sample=$(awk -v seed="$seed" 'BEGIN { srand(seed) } { printf "%.9f\t%s\n", rand(), $0 }' <<<"$all" | sort | head -n "$count" | cut -f2-)
fi
echo "$(wc -l <<<"$sample") of $(wc -l <<<"$all") changes, drawn with seed $seed"
printf '%s\n' "$sample" >"$out/sample.txt"

names=()
while IFS= read -r name; do names+=(--re "^$(sed 's/[][\\.*^$()+?{}|]/\\&/g' <<<"$name")\$"); done <<<"$sample"
cargo mutants --package softroce-engine "${names[@]}" --baseline skip --timeout 60 --shuffle --jobs "$jobs" --output "$out" --colors never
case $? in
  0|2|3) ;; # All noticed; some survived; some do not end.
  *) exit 1;;
esac

# cargo mutants 27 tries every change of a field, wanted or not: only the sample counts.
of_sample() { grep -Fxf "$out/sample.txt" "$out/mutants.out/$1.txt" 2>/dev/null; }
count_of() { of_sample "$1" | wc -l; }
awk -v caught="$(count_of caught)" -v endless="$(count_of timeout)" -v missed="$(count_of missed)" \
    -v unviable="$(count_of unviable)" -v seed="$seed" '
  BEGIN {
    noticed = caught + endless; n = noticed + missed
    if (n == 0) { print "nothing was tried"; exit 1 }
    p = noticed / n; z = 1.96; d = 1 + z * z / n
    middle = (p + z * z / (2 * n)) / d; half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / d
    printf "%d noticed (%d of them without end), %d not, %d do not build (seed %s): %.1f %% noticed, 95 %% interval %.1f to %.1f %%\n",
      noticed, endless, missed, unviable, seed, 100 * p, 100 * (middle - half), 100 * (middle + half)
    exit p < 0.85
  }'
status=$?
of_sample missed | sort
exit $status
