#!/bin/sh
# Install softroce under a prefix, or remove it.
#
#   install.sh [--prefix DIR] [--from DIR]     build it (in a checkout) and install it, or bring it up to date
#   install.sh --uninstall [--prefix DIR]      remove what was installed there, and nothing else
#
#   --prefix DIR   where bin/, lib/ and share/ are; ~/.local when not named, /usr/local for root
#   --from DIR     install what lies built in DIR (such as target/release) in place of building it
#
# The environment variable DESTDIR stands in front of the prefix, for packages that are made elsewhere than they
# will lie. Nothing has to be set afterwards: the command finds its parts from its own place, so that the whole
# prefix may also be moved.
set -eu
LC_ALL=C
export LC_ALL

# Every file: its kind, its mode, its name in the build directory or the repository, its place under the prefix.
# The kinds: built by cargo, text of the repository, packed (in archives only).
#
# The shared objects have a directory of their own. In lib/ itself, ldconfig would make a link libibverbs.so.1 to
# the drop-in, by the name in it, and all programs of the machine would run on softroce.
files='
built 755 softroce bin/softroce
built 755 libsoftroce_dropin.so lib/softroce/libsoftroce_dropin.so
built 755 libsoftroce_paths.so lib/softroce/libsoftroce_paths.so
text 644 contrib/cmake/SoftroceConfig.cmake lib/cmake/Softroce/SoftroceConfig.cmake
text 644 README.md share/doc/softroce/README.md
text 644 docs/drop-in.md share/doc/softroce/docs/drop-in.md
text 644 docs/pyverbs.md share/doc/softroce/docs/pyverbs.md
text 644 LICENSE-MIT share/doc/softroce/LICENSE-MIT
text 644 LICENSE-APACHE share/doc/softroce/LICENSE-APACHE
packed 644 - share/doc/softroce/LICENSES-THIRD-PARTY
'
# What is installed, one line each: "f PATH" a file, "d PATH" a directory that was made for it.
manifest=lib/softroce/installed

fail() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

usage() {
  sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//;p;}' "$0"
}

# ------------------------------------------------------------- arguments --
action=install from='' prefix=''
while [ $# -gt 0 ]; do
  case $1 in
    --prefix|--from)
      if [ $# -lt 2 ] || [ -z "$2" ]; then fail "$1 needs a directory"; fi
      if [ "$1" = --prefix ]; then prefix=$2; else from=$2; fi
      shift;;
    --prefix=?*) prefix=${1#*=};;
    --from=?*) from=${1#*=};;
    --uninstall) action=uninstall;;
    -h|--help) usage; exit 0;;
    *) usage >&2; fail "there is no argument $1";;
  esac
  shift
done
if [ -z "$prefix" ]; then
  if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?names no home directory; say --prefix DIR}/.local; fi
fi
case $prefix in
  *'
'*) fail "the prefix must be on one line";;
  /*) ;;
  *) prefix=$(pwd)/$prefix;;
esac
[ "$prefix" = / ] || prefix=${prefix%/}
root=${DESTDIR:-}$prefix

# The folder of this script: contrib/ of a checkout, or the top of an unpacked archive.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# ------------------------------------------------------------------ parts --

# Whether a manifest's path stays below the prefix.
is_below() {
  case /$1/ in
    *//*|*/../*) return 1;;
  esac
}

# The manifest's paths of one kind (f or d), last first.
listed() {
  [ -f "$root/$manifest" ] || return 0
  sed -n "s/^$1 //p" "$root/$manifest" | sort -r
}

# Fails unless the nearest existing directory above $1 can be written to.
check_writable() {
  at=$1
  while [ ! -e "$at" ]; do at=$(dirname -- "$at"); done
  [ -d "$at" ] || fail "$at is in the way: it is no directory"
  [ -w "$at" ] || fail "$(id -un 2>/dev/null || id -u) cannot write to $at; choose another --prefix"
}

# Makes the directory $1 of the prefix and those above it, and notes which were not there.
make_directory() {
  [ ! -d "$root/$1" ] || return 0
  if [ "$1" != . ]; then make_directory "$(dirname -- "$1")"; fi
  mkdir -p -- "$root/$1"
  printf 'd %s\n' "$1" >>"$notes"
}

# Puts file $1 with mode $2 at $3: moved there as a whole, since programs may be running from the one before.
put() {
  partial=$3.new.$$
  cp -- "$1" "$partial"
  chmod "$2" "$partial"
  mv -f -- "$partial" "$3"
}

# Where the file of kind $1, name $2 and path $3 comes from; what lies as under a prefix is an unpacked archive.
source_of() {
  if [ -e "$from/$3" ]; then printf '%s' "$from/$3"
  elif [ "$1" = built ]; then printf '%s' "$from/$2"
  else printf '%s' "$here/../$2"
  fi
}

# Calls $1 with the row of each file.
each_file() {
  printf '%s' "$files" | while read -r kind mode name path; do
    if [ -z "$kind" ]; then continue; fi
    if [ "$kind" = packed ] && [ ! -e "$from/$path" ]; then continue; fi
    "$1" "$kind" "$mode" "$name" "$path" || exit 1
  done
}

# ---------------------------------------------------------------- install --

check_target() {
  target=$root/$4
  check_writable "$(dirname -- "$target")"
  if [ -e "$target" ] || [ -L "$target" ]; then
    listed f | grep -qxF -- "$4" ||
      fail "$target is there already and is not from this script; move it away, or choose another --prefix"
  fi
}

check_source() {
  file=$(source_of "$1" "$3" "$4")
  [ -r "$file" ] || fail "there is no $file to install"
}

note_file() {
  make_directory "$(dirname -- "$4")"
  printf 'f %s\n' "$4" >>"$notes"
}

# Puts a text: what it links to and is not installed, it links to where the project is.
put_text() {
  linked=$(mktemp)
  awk -v files="$(printf '%s' "$files" | tr '\n' ' ')" -v home=https://github.com/softroce/softroce/blob/main/ -v from="$3" '
    BEGIN {
      count = split(files, words)
      for (i = 3; i <= count; i += 4) installed[words[i]] = 1
      folder = from
      if (!sub("/[^/]*$", "/", folder)) folder = ""
    }
    {
      line = ""
      while (match($0, /\]\([^)]*\)/)) {
        link = substr($0, RSTART + 2, RLENGTH - 3)
        path = folder link
        sub("#.*", "", path)
        while (sub("[^/]+/\\.\\./", "", path)) {}
        if (link !~ /^[a-z]+:|^#/ && !(path in installed)) link = home path
        line = line substr($0, 1, RSTART - 1) "](" link ")"
        $0 = substr($0, RSTART + RLENGTH)
      }
      print line $0
    }' "$1" >"$linked"
  put "$linked" "$2" "$4"
  rm -f "$linked"
}

install_file() {
  file=$(source_of "$1" "$3" "$4")
  case $1:$3 in
    text:*.md) put_text "$file" "$2" "$3" "$root/$4";;
    *) put "$file" "$2" "$root/$4";;
  esac
}

# Builds in the checkout, and tells where.
build() {
  [ -f "$here/../Cargo.toml" ] || fail "$here is neither a checkout's contrib folder nor an unpacked archive"
  command -v cargo >/dev/null || fail "there is no cargo in PATH: install Rust 1.91 or newer (https://rustup.rs)"
  (cd "$here/.." && cargo build --release --locked) || fail "the build failed"
  target_directory=${CARGO_TARGET_DIR:-target}
  case $target_directory in /*) ;; *) target_directory=$here/../$target_directory;; esac
  from=$target_directory/release
}

install_all() {
  if [ -z "$from" ] && [ -x "$here/bin/softroce" ]; then from=$here; fi
  # Before the build, which takes minutes.
  each_file check_target
  [ -n "$from" ] || build
  [ -d "$from" ] || fail "there is no directory $from to install from"
  each_file check_source

  before=$(listed f)
  notes=$(mktemp)
  trap 'rm -f "$notes"' EXIT
  listed d | sed 's/^/d /' >>"$notes"
  make_directory lib/softroce
  each_file note_file
  printf 'f %s\n' "$manifest" >>"$notes"
  # First the list with what is there and what will be: a copy that fails half-way can still be removed.
  { cat "$notes"; [ -z "$before" ] || printf '%s\n' "$before" | sed 's/^/f /'; } | sort -u >"$notes.both"
  put "$notes.both" 644 "$root/$manifest"
  rm -f "$notes.both"
  each_file install_file
  printf '%s\n' "$before" | while IFS= read -r old; do
    [ -z "$old" ] || grep -qxF -- "f $old" "$notes" || ! is_below "$old" || rm -f -- "$root/$old"
  done
  sort -u -o "$notes" "$notes"
  put "$notes" 644 "$root/$manifest"

  echo "installed under $root"
  case :${PATH:-}: in
    *:"$prefix/bin":*) echo "run: softroce run -- PROGRAM";;
    *) echo "run: $prefix/bin/softroce run -- PROGRAM     ($prefix/bin is not in PATH)";;
  esac
}

# -------------------------------------------------------------- uninstall --

uninstall() {
  [ -f "$root/$manifest" ] || fail "nothing is installed under $root (there is no $root/$manifest)"
  check_writable "$root/$(dirname -- "$manifest")"
  gone=$(listed f)
  directories=$(listed d)
  printf '%s\n' "$gone" | while IFS= read -r path; do
    is_below "$path" || fail "$root/$manifest names $path, which is not below the prefix"
    # The list goes last: what could not be removed stays listed.
    [ "$path" = "$manifest" ] || rm -f -- "$root/$path"
  done
  rm -f -- "$root/$manifest"
  # Directories with files of others stay.
  printf '%s\n' "$directories" | while IFS= read -r path; do
    case $path in
      '') ;;
      .) rmdir -- "$root" 2>/dev/null || :;;
      *) ! is_below "$path" || rmdir -- "$root/$path" 2>/dev/null || :;;
    esac
  done
  echo "removed from $root"
}

if [ "$action" = install ]; then install_all; else uninstall; fi
