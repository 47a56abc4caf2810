# Runs in a guest: a stub of NVML writes to a frozen file system and so sleeps
# where no signal wakes it. gdrcheck must end in time all the same.
out=/host/out
mkdir -p $out
cp /host/gdrcheck /host/libnvml-stub.so /tmp/

truncate -s 8M /tmp/image
/usr/bin/mkfs.ext4 -q /tmp/image || exit 1
mount -o loop /tmp/image /mnt || exit 1
/usr/bin/fsfreeze -f /mnt || exit 1

export GDRCHECK_NVML_LIBRARY=/tmp/libnvml-stub.so LAB_NVML_WRITE=/mnt/file
for command in check topo; do
  read -r begin _ </proc/uptime
  /tmp/gdrcheck $command --timeout 5s -o json >$out/$command.json 2>$out/$command.err
  echo $? >$out/$command.rc
  read -r end _ </proc/uptime
  echo "$begin $end" >$out/$command.times
done
# The stub did what it is for: a thread is in uninterruptible sleep. Its killed
# process may show as a zombie meanwhile.
grep -h '^State:' /proc/[0-9]*/task/[0-9]*/status >$out/states

/usr/bin/fsfreeze -u /mnt
exit 0
