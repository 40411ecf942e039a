#!/usr/bin/env bash
# All checks of the project, the same here and on a build machine.
#
#   ./ci.sh quick   format, lints, tests without foreign programs, documentation     (2 minutes; when nothing is compiled yet, 5)
#   ./ci.sh         the same and: the other target, conformance, end-to-end tests    (under 40 minutes)
#   ./ci.sh long    the same and: the kernel's soft RDMA in a VM, repetitions, fuzzing, small changes of the engine, and
#                   a comparison of speeds                                            (hours)
#
# Every part runs, also after one has failed; a table at the end tells each part's result and seconds, then
# what was left out and why. The exit status is 0 only if nothing failed. As root on Debian, foreign programs
# that are missing get installed; otherwise their tests are left out. Needs Rust, a C linker, and the network
# for the first build.
set -u -o pipefail
exec </dev/null
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

mode=${1:-full}
case $mode in
  quick|full|long) ;;
  *) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 2;;
esac

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto} RUST_BACKTRACE=1
# Where nothing is compiled yet, being ready to compile small changes soon would cost a tenth of the time. Who has worked
# here already keeps that, or all would be compiled anew.
[ -d "${CARGO_TARGET_DIR:-target}/debug/incremental" ] || export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
started=$SECONDS
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
table=() skipped=() failures=0

# part NAME SECONDS_MAX COMMAND...: runs one check and notes how it ended.
part() {
  local name=$1 limit=$2 begun=$SECONDS status result; shift 2
  printf '\n==> %s: %s\n' "$name" "$*"
  timeout --kill-after=20 "$limit" "$@" 2>&1 | tee "$logs/part"
  status=${PIPESTATUS[0]}
  case $status in
    0) result=ok;;
    124|137) result="FAILED (over $limit s)"; failures=$((failures + 1));;
    *) result="FAILED (status $status)"; failures=$((failures + 1));;
  esac
  table+=("$(printf '%-24s %6d  %s' "$name" $((SECONDS - begun)) "$result")")
  note_ignored_tests "$name"
}

# skip NAME REASON: notes a check that cannot run here.
skip() {
  skipped+=("$1: $2")
  table+=("$(printf '%-24s %6s  %s' "$1" - skipped)")
}

# Tests that found something missing say so in their last words.
note_ignored_tests() {
  local line
  while IFS= read -r line; do skipped+=("$1: $line"); done < <(
    sed -nE 's/^test (.*[^ ]) +\.\.\. .*ignored[^(]*\((.*)\).*$/\2\t\1/p; s/^test (.*[^ ]) +\.\.\. .*ignored, (.*)$/\2\t\1/p' "$logs/part" |
      sort | awk -F'\t' '$1 != last { if (n) print n " tests: " last; last = $1; n = 0 } { n++ } END { if (n) print n " tests: " last }')
}

# The foreign programs of the end-to-end tests: a command or file that shows one is there, and its package.
foreign=(
  tshark:tshark ibv_rc_pingpong:ibverbs-utils ib_write_lat:perftest ip:iproute2 iperf3:iperf3
  rstream:rdmacm-utils /usr/include/rdma/rsocket.h:librdmacm-dev ucx_perftest:ucx-utils fi_pingpong:libfabric-bin gcc:gcc setpriv:util-linux
  /usr/include/infiniband/verbs.h:libibverbs-dev ibstat:infiniband-diags fi_info:libfabric-bin clang:clang
  rping:rdmacm-utils /usr/include/rdma/rdma_cma.h:librdmacm-dev qperf:qperf
  /usr/share/doc/libucx-dev/examples/ucp_client_server.c:libucx-dev
  g++:g++ make:make cmake:cmake /usr/include/gtest/gtest.h:libgtest-dev objdump:binutils
  valgrind:valgrind /usr/lib/debug/.build-id:libc6-dbg
  /usr/lib/python3/dist-packages/pyverbs:python3-pyverbs chromium:chromium
)
install_foreign_programs() {
  local entry probe missing=()
  for entry in "${foreign[@]}"; do
    probe=${entry%%:*}
    [ -e "$probe" ] || command -v "$probe" >/dev/null || missing+=("${entry##*:}")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    for entry in "${missing[@]}"; do skipped+=("package $entry: not installed, and only root on Debian can install it"); done
    return 0
  fi
  export DEBIAN_FRONTEND=noninteractive
  local begun=$SECONDS
  if apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; then
    table+=("$(printf '%-24s %6d  %s' packages $((SECONDS - begun)) "ok (${missing[*]})")")
  else
    skip packages "apt-get could not install ${missing[*]}; tests that need them are left out"
  fi
}

has_cargo() { cargo "$1" --version >/dev/null 2>&1; }

# ------------------------------------------------------------------ quick --
if [ "$mode" = quick ]; then
  # A few long tests do a tenth of their work.
  export SOFTROCE_QUICK=1
else
  install_foreign_programs
fi

if has_cargo fmt; then part format 60 cargo fmt --all --check
else skip format "rustfmt is not installed (rustup component add rustfmt)"; fi

if has_cargo clippy; then part lints 900 cargo clippy --workspace --all-targets --locked -- -D warnings
else skip lints "clippy is not installed (rustup component add clippy)"; fi

if has_cargo nextest; then
  part tests 1200 cargo nextest run --workspace --exclude e2e --locked --no-fail-fast --status-level fail
  part "documentation tests" 600 cargo test --workspace --doc --locked --no-fail-fast
else
  part tests 1200 cargo test --workspace --exclude e2e --locked --no-fail-fast
fi
part "repository" 300 cargo test -p e2e --lib --test repository --locked
part "documentation" 600 env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
# Beside another package, so that all under them is there already with the same features.
part "cases without beds" 300 cargo check -p conformance -p e2e --no-default-features --locked

# ------------------------------------------------------------------- full --
if [ "$mode" != quick ]; then
  other=aarch64-unknown-linux-gnu
  [ "$(uname -m)" != aarch64 ] || other=x86_64-unknown-linux-gnu
  if rustup target list --installed 2>/dev/null | grep -qx "$other" ||
     rustup target add "$other" >/dev/null 2>&1; then
    part "check for ${other%%-*}" 600 cargo check --workspace --all-targets --target "$other" --locked
  else
    skip "check for ${other%%-*}" "the target $other cannot be had here"
  fi
  part "release build" 1200 cargo build --release --locked
  part mutants 900 cargo test --locked -p conformance --features mutations --test mutants
  part conformance 600 cargo run --release --locked -- conformance
  part "end to end" 1800 cargo test -p e2e --test e2e --locked
fi

# ------------------------------------------------------------------- long --
if [ "$mode" = long ]; then
  built=${CARGO_TARGET_DIR:-target}
  # The kernel's drivers: the suite on them, and softroce facing them.
  if reason=$(tests/rxe-vm/rig.sh --can-run 2>&1); then
    part "the kernel's soft RDMA" 1500 tests/rxe-vm/rig.sh "$built/release/softroce" "$built/debug/peer"
    part "scripts against rxe" 900 tests/rxe-vm/drill.sh "$built/release/softroce"
    part "RDMA CM with rxe" 900 tests/rxe-vm/cm.sh "$built/release"
  else
    skip "the kernel's soft RDMA" "$reason"
  fi
  part "end to end, long" 1800 env SOFTROCE_LONG_TESTS=1 cargo test -p e2e --test e2e --locked -- tear

  # What passes once must pass always: on virtual time with other seeds, on real sockets with other timing.
  repeat() { local i; for i in $(seq "$1"); do "${@:2}" --seed "$i" || return 1; done; }
  export -f repeat
  for bed in sim:20 udp:5; do
    part "conformance, ${bed%:*} x ${bed#*:}" 2400 \
      bash -c 'repeat "$@"' repeat "${bed#*:}" "$built/release/softroce" conformance --bed "${bed%:*}"
  done

  part "simulation" 2400 "$built/release/softroce" sim --minutes 30 --findings "$logs"
  part "reference model" 1200 env PROPTEST_CASES=100000 cargo test -p softroce-sim --test sim --locked model

  for folder in $(git ls-files '*fuzz/Cargo.toml' 2>/dev/null); do
    folder=$(dirname "$folder")
    if ! has_cargo fuzz; then skip "fuzz $folder" "cargo-fuzz is not installed (cargo install cargo-fuzz)"; continue; fi
    targets=$(cd "$folder" && cargo fuzz list --fuzz-dir . 2>/dev/null)
    [ -n "$targets" ] || { skip "fuzz $folder" "cargo fuzz lists no targets there"; continue; }
    for target in $targets; do
      part "fuzz $target" 1200 cargo fuzz run -s none --fuzz-dir "$folder" "$target" -- -max_total_time=600
    done
  done
  if has_cargo mutants; then part "changes of the engine" 7200 .ci/mutants.sh
  else skip "changes of the engine" "cargo-mutants is not installed (cargo install cargo-mutants)"; fi
  part "compare speeds" 1800 cargo run --release --locked -- perf compare --quick
fi

# ---------------------------------------------------------------- summary --
printf '\n%-24s %6s  %s\n' part seconds result
printf '%s\n' "${table[@]}"
printf '%-24s %6d\n' total $((SECONDS - started))
if [ ${#skipped[@]} -gt 0 ]; then
  printf '\nLeft out:\n'
  printf '  %s\n' "${skipped[@]}"
fi
if [ "$failures" -gt 0 ]; then
  printf '\nFAILED: %d of %d parts\n' "$failures" "${#table[@]}"
  exit 1
fi
printf '\nAll parts passed.\n'
