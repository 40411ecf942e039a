# Becomes the program "$@" in a user namespace, made here and with all users in it, whose limit of further ones is 0: as
# on a machine that forbids user namespaces. Nothing changes for the machine.
unshare --user sleep 60 & holder=$!
while [ "$(readlink /proc/$holder/ns/user)" = "$(readlink /proc/self/ns/user)" ]; do
  kill -0 $holder || exit 125
  sleep 0.01
done
echo 0 0 4294967295 >/proc/$holder/uid_map &&
  echo 0 0 4294967295 >/proc/$holder/gid_map &&
  exec 9</proc/$holder/ns/user || exit 125
kill $holder
# Entered from outside, as its root: a shell of the holder's would have lost the right with its first exec.
exec nsenter --user=/proc/self/fd/9 --setuid 0 --setgid 0 \
  sh -c 'exec 9<&-; echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"' sh "$@"
