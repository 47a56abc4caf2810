#!/bin/busybox sh
# The guest's first process: mounts what a system has, loads the modules, runs
# /host/run.sh and prints its exit status as the last line. qemu's own exit
# status says nothing about the guest.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /host /mnt /bb
/bin/busybox --install -s /bb
# busybox's ip shadows iproute2's and makes veth pairs wrongly: its programs
# come last.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/bb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
mount -t tmpfs tmp /tmp
chmod 1777 /tmp
while read -r module; do
  modprobe "$module" || echo "lab: module $module did not load"
done </etc/lab-modules
status=125
if mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 host /host; then
  cd /host
  sh /host/run.sh
  status=$?
  cd /
  umount /host
fi
echo "lab: exit $status"
# -n: a sync could wait for a frozen file system for ever.
poweroff -f -n
