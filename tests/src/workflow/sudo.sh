#!/bin/sh
# In the place of sudo when a CI file runs in the tests: packages are there already, or this fails.
case "$1 $2" in
  "apt-get update") ;;
  "apt-get install")
    shift 2
    for word in "$@"; do
      case $word in
        -*) ;;
        *) dpkg-query --show --showformat='${db:Status-Status}\n' "$word" | grep -qx installed ||
             { echo "the package $word is not installed on this machine" >&2; exit 1; };;
      esac
    done;;
  *) echo "the tests know no sudo $*" >&2; exit 1;;
esac
