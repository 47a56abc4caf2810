# Runs in the virtual node: sets it up, then asks gdrcheck and the node's own
# tools the same things. Tools are called by path, since busybox puts its
# applets first.
out=/host/out
mkdir -p $out
cp /host/gdrcheck /host/libnvml-stub.so /tmp/

netdev() { ls /sys/bus/pci/devices/"$1"/net; }
nic() { # RDMA device, address, MTU, IPv4
  dev=$(netdev "$2")
  /usr/bin/ip link set "$dev" up mtu "$3"
  /usr/bin/ip addr add "$4"/16 dev "$dev"
  /usr/bin/rdma link add "$1" type rxe netdev "$dev"
}
nic rxe0 0000:24:00.0 4200 10.1.0.1
nic rxe1 0000:27:00.0 1500 10.2.0.1
nic rxe2 0000:81:00.0 2300 10.3.0.1
nic rxe3 0000:c1:00.0 1500 10.4.0.1
/usr/bin/ip link set "$(netdev 0000:c1:00.0)" down
# Links come up and addresses become GIDs.
sleep 3

/usr/bin/setpci -s 20:00.0 ECAP_ACS+6.w=001d
/usr/bin/setpci -s 80:00.0 ECAP_ACS+6.w=0000
/usr/bin/setpci -s 80:01.0 ECAP_ACS+6.w=0005

user() { /usr/bin/setpriv --reuid=1000 --regid=1000 --clear-groups -- "$@"; }
save() { # name, command: its output and exit status
  name=$1
  shift
  "$@" >$out/"$name" 2>$out/"$name.err"
  echo $? >$out/"$name.rc"
}

# Emulation on a busy machine is slow: the usual time limit could end the
# collection before its end.
save check-root.json /tmp/gdrcheck check --timeout 120s --record $out/node.rec -o json
save check-user.json user /tmp/gdrcheck check --timeout 120s -o json
save check-root.txt /tmp/gdrcheck check --timeout 120s
save check-user.txt user /tmp/gdrcheck check --timeout 120s
save topo-root.json /tmp/gdrcheck topo --timeout 120s -o json
export GDRCHECK_NVML_LIBRARY=/tmp/libnvml-stub.so
export LAB_GPUS="0000:23:00.0 0000:82:00.0"
save topo-gpus.json /tmp/gdrcheck topo --timeout 120s -o json
save topo-gpus.txt /tmp/gdrcheck topo --timeout 120s
save check-gpus.json /tmp/gdrcheck check --timeout 120s -o json
save check-gpus.txt /tmp/gdrcheck check --timeout 120s
unset GDRCHECK_NVML_LIBRARY LAB_GPUS

save lspci-root /usr/bin/lspci -D -nn -vvv
save lspci-user user /usr/bin/lspci -D -nn -vvv
save lspci-paths /usr/bin/lspci -D -n -PP
save lspci-tree /usr/bin/lspci -tv -nn
save lstopo.xml /usr/bin/lstopo-no-graphics --whole-io --of xml
save ibv_devinfo /usr/bin/ibv_devinfo -v
save rdma-link.json /usr/bin/rdma -j link
save rdma-dev.json /usr/bin/rdma -j dev
save ip-link.json /usr/bin/ip -j -d link
save ip-addr.json /usr/bin/ip -j addr
for group in /sys/kernel/iommu_groups/*; do
  [ -e "$group" ] && echo "${group##*/} $(cat "$group"/type)"
done >$out/iommu-types
exit 0
