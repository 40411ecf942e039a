#!/bin/sh
# Make a release archive, softroce-VERSION-ARCH-linux.tar.gz, and its checksum beside it.
#
#   release.sh [--glibc VERSION] [--from DIR] [--out DIR]
#
#   --glibc VERSION  link for this glibc or newer, such as 2.28; needs zig: pip install cargo-zigbuild ziglang
#                    (without it, the archive needs about the glibc of this machine)
#   --from DIR       pack what lies built in DIR in place of building it
#   --out DIR        where the archive gets to; dist when not named
#
# The same sources and tools give the same archive, byte for byte; SOURCE_DATE_EPOCH is the time of its files (that of
# the last commit when unset). The archive's README and the last line printed tell the oldest glibc that it runs with,
# read from the files themselves. Needs binutils (objdump, strip) and GNU tar.
set -eu
LC_ALL=C
export LC_ALL
umask 022

fail() {
  printf 'release.sh: %s\n' "$*" >&2
  exit 1
}

glibc='' from='' out=dist
while [ $# -gt 0 ]; do
  case $1 in
    --glibc|--from|--out)
      if [ $# -lt 2 ] || [ -z "$2" ]; then fail "$1 needs a value"; fi
      case $1 in --glibc) glibc=$2;; --from) from=$2;; --out) out=$2;; esac
      shift;;
    -h|--help) sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//;p;}' "$0"; exit 0;;
    *) fail "there is no argument $1 (--help tells which there are)";;
  esac
  shift
done
if [ -n "$glibc" ] && [ -n "$from" ]; then fail "--glibc says how to build and --from not to: choose one"; fi
for tool in cargo objdump strip tar gzip sha256sum; do
  command -v $tool >/dev/null || fail "there is no $tool in PATH"
done

contrib=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
top=$(dirname -- "$contrib")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$top/Cargo.toml")
arch=$(uname -m)
name=softroce-$version-$arch-linux
time=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || echo 0)}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# Builds with no path of this machine in the files, into a target directory of its own, and tells where.
build() {
  cargo_home=${CARGO_HOME:-$HOME/.cargo}
  flags="--remap-path-prefix=$top=/softroce --remap-path-prefix=$cargo_home=/cargo"
  triple=$arch-unknown-linux-gnu
  directory=$top/target/archive
  if [ -z "$glibc" ]; then
    (cd "$top" && RUSTFLAGS="$flags" cargo build --release --locked --target "$triple" --target-dir "$directory")
  else
    command -v cargo-zigbuild >/dev/null || fail "--glibc needs cargo-zigbuild and zig: pip install cargo-zigbuild ziglang"
    # The system's unwinder, not zig's: a thread that is cancelled unwinds through our frames and the program's alike.
    # Its newest version asks for a newer glibc than we do, which is not ours to resolve.
    unwinder=$(cc -print-file-name=libgcc_s.so.1)
    flags="$flags -Clink-arg=$unwinder -Clink-arg=-Wl,--allow-shlib-undefined"
    (cd "$top" && RUSTFLAGS="$flags" cargo-zigbuild zigbuild --release --locked --target "$triple.$glibc" \
      --target-dir "$directory")
  fi
  from=$directory/$triple/release
}

# What file $1 asks of glibc: its newest version. Relative relocations in their short form came with 2.36.
glibc_of() {
  objdump -p "$1" | sed -n 's/GLIBC_ABI_DT_RELR/GLIBC_2.36/; s/.* GLIBC_\([0-9][0-9.]*\)$/\1/p' | sort -V | tail -n 1
}

# Fails if file $1 needs a library that not every system with glibc has.
check_needed() {
  for library in $(objdump -p "$1" | sed -n 's/^ *NEEDED *//p'); do
    case $library in
      libc.so.6|libm.so.6|libdl.so.2|libpthread.so.0|librt.so.1|ld-linux-*.so.*|libgcc_s.so.1) ;;
      *) fail "$1 needs $library, which a system may not have";;
    esac
  done
}

# Fails if file $1 takes a function from whatever library has it, which tells nothing of the oldest one that does: a
# linker for an old glibc leaves so what that glibc has not.
check_versions() {
  names=$(objdump -T "$1" | sed -n 's/^[0-9a-f]* \(g\| \) *[A-Z]*  *\*UND\*\t[0-9a-f]* *\([^ ()]*\)$/\2/p')
  [ -z "$names" ] || fail "$1 needs, in no version: $names"
}

# The licences of all that is compiled in.
third_party() {
  sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
  (cd "$top" && cargo tree --locked -e normal --prefix none --format '{p} | {l}' \
    --target "$arch-unknown-linux-gnu") | sed 's/ (\*)$//; /^$/d; / (\//d' | sort -u |
    while read -r crate crate_version rest; do
      case $rest in *proc-macro*) continue;; esac
      printf '==== %s %s: %s\n\n' "$crate" "${crate_version#v}" "${rest##*| }"
      cat "$sources"/*/"$crate-${crate_version#v}"/[Ll][Ii][Cc][Ee][Nn][CcSs]* 2>/dev/null || :
      echo
    done
}

[ -n "$from" ] || build
DESTDIR=$stage "$contrib/install.sh" --prefix "/$name" --from "$from" >/dev/null
# It lists what is installed; an archive is not.
rm "$stage/$name/lib/softroce/installed"
cp "$contrib/install.sh" "$stage/$name/install.sh"

oldest=0
for file in "$stage/$name"/bin/* "$stage/$name"/lib/softroce/*.so; do
  # The names of functions stay, for backtraces.
  strip --strip-debug "$file"
  check_needed "$file"
  check_versions "$file"
  oldest=$(printf '%s\n%s\n' "$oldest" "$(glibc_of "$file")" | sort -V | tail -n 1)
done
third_party >"$stage/$name/share/doc/softroce/LICENSES-THIRD-PARTY"
cat >"$stage/$name/README" <<END
softroce $version: an RDMA network card in software, for Linux on $arch with glibc $oldest or newer
("ldd --version" tells which one a system has).

  bin/softroce run -- PROGRAM        run an unmodified RDMA program; works from here
  ./install.sh --prefix DIR          install it elsewhere
  ./install.sh --uninstall --prefix DIR

More is told by bin/softroce --help and in share/doc/softroce.
END

mkdir -p -- "$out"
archive=$out/$name.tar.gz
(cd "$stage" && tar --sort=name --format=ustar --mtime="@$time" --owner=0 --group=0 --numeric-owner \
  --mode=u+rw,go-w,a+rX -cf - "$name") | gzip -9n >"$archive"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
echo "$archive: $(wc -c <"$archive") bytes, runs with glibc $oldest or newer"
