#!/usr/bin/env bash
# The step of action.yml: unpacks a release archive of softroce and puts its command into PATH.
#
# Inputs are the variables INPUT_VERSION, INPUT_ARCHIVE, INPUT_SHA256 and INPUT_ENVIRONMENT; see action.yml. A machine
# without a way to the project's releases can name an archive for all its jobs in SOFTROCE_ARCHIVE.
set -euo pipefail

fail() {
  # In this form, GitHub shows it at the top of the job.
  printf '::error title=softroce::%s\n' "$*"
  exit 1
}

: "${GITHUB_PATH:?is set by the runner}" "${GITHUB_ENV:?is set by the runner}" "${GITHUB_OUTPUT:?is set by the runner}"
releases=https://github.com/softroce/softroce/releases/download
version=${INPUT_VERSION:-0.1.0}
name=softroce-${version#v}-$(uname -m)-linux.tar.gz
archive=${INPUT_ARCHIVE:-${SOFTROCE_ARCHIVE:-$releases/v${version#v}/$name}}
sha256=${INPUT_SHA256:-}
folder=$(mktemp -d "${RUNNER_TEMP:-/tmp}/softroce.XXXXXX")

case $archive in
  http://*|https://*)
    get() { curl --fail --silent --show-error --location --retry 3 --output "$2" "$1"; }
    get "$archive" "$folder/archive" || fail "$archive cannot be had"
    if [ -z "$sha256" ]; then
      get "$archive.sha256" "$folder/sha256" || fail "$archive.sha256 cannot be had"
      read -r sha256 _ <"$folder/sha256"
    fi
    archive=$folder/archive;;
  *) [ -r "$archive" ] || fail "there is no archive $archive";;
esac
if [ -n "$sha256" ]; then
  read -r found _ < <(sha256sum "$archive")
  [ "$found" = "$sha256" ] || fail "the archive's checksum is $found and should be $sha256"
fi

prefix=$folder/softroce
mkdir "$prefix"
tar -xzf "$archive" -C "$prefix" --strip-components=1 || fail "$archive is no archive of softroce"
"$prefix/bin/softroce" --version ||
  fail "softroce does not start here; its README says: $(sed -n 1,2p "$prefix/README" | tr '\n' ' ')"

echo "$prefix/bin" >>"$GITHUB_PATH"
echo "prefix=$prefix" >>"$GITHUB_OUTPUT"
case ${INPUT_ENVIRONMENT:-false} in
  true) "$prefix/bin/softroce" env --format github >>"$GITHUB_ENV";;
  false) ;;
  *) fail "environment is ${INPUT_ENVIRONMENT}; it can be true or false";;
esac
