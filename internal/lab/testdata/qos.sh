# Runs in the virtual node: RDMA ports on network interfaces of several kinds,
# then changed; at each stage gdrcheck and the node's own tools are asked.
out=/host/out
mkdir -p $out
cp /host/gdrcheck /tmp/

netdev() { ls /sys/bus/pci/devices/"$1"/net; }
save() { # name, command: its output and exit status
  name=$1
  shift
  "$@" >$out/"$name" 2>$out/"$name.err"
  echo $? >$out/"$name.rc"
}

/usr/bin/modprobe 8021q
/usr/bin/modprobe bonding max_bonds=0

# rxe0 has IPv4 and a VLAN on its interface, rxe1 IPv6 alone, rxe2 stands on a
# bond of two.
a=$(netdev 0000:24:00.0)
b=$(netdev 0000:27:00.0)
/usr/bin/ip link set "$a" up mtu 4200
/usr/bin/ip addr add 10.1.0.1/16 dev "$a"
/usr/bin/ip link add link "$a" name "$a".10 type vlan id 10
/usr/bin/ip addr add 10.10.0.1/16 dev "$a".10
/usr/bin/ip link set "$a".10 up
/usr/bin/ip link set "$b" up
/usr/bin/ip addr add fd00:1::1/64 dev "$b" nodad
/usr/bin/ip link add bond0 type bond mode active-backup
for leg in $(netdev 0000:81:00.0) $(netdev 0000:c1:00.0); do
  /usr/bin/ip link set "$leg" down
  /usr/bin/ip link set "$leg" master bond0
done
/usr/bin/ip link set bond0 up
/usr/bin/ip addr add 10.3.0.1/16 dev bond0
/usr/bin/rdma link add rxe0 type rxe netdev "$a"
/usr/bin/rdma link add rxe1 type rxe netdev "$b"
/usr/bin/rdma link add rxe2 type rxe netdev bond0
sleep 5

stage() { # prefix: what everybody says now
  save "$1-check.json" /tmp/gdrcheck check --module --timeout 120s --record $out/"$1".rec -o json
  save "$1-ibv_devinfo" /usr/bin/ibv_devinfo -v
  save "$1-rdma-link.json" /usr/bin/rdma -j link
  save "$1-statistic.json" /usr/bin/rdma -j statistic
  save "$1-ip-link.json" /usr/bin/ip -j -s -s link
  for dev in $(ls /sys/class/net); do
    save "$1-ethtool-$dev" /usr/bin/ethtool "$dev"
    save "$1-pause-$dev" /usr/bin/ethtool -a "$dev"
    save "$1-fec-$dev" /usr/bin/ethtool --show-fec "$dev"
    save "$1-module-$dev" /usr/bin/ethtool -m "$dev"
    save "$1-stats-$dev" /usr/bin/ethtool -S "$dev"
    save "$1-dcb-$dev" /usr/bin/dcb -s -j pfc show dev "$dev"
  done
  for f in 0000:24:00.0 0000:81:00.0; do
    save "$1-devlink-$f" /usr/bin/devlink -j dev info pci/$f
  done
}

stage before

# What breaks in the field: a smaller MTU, pause turned on, a link taken away, a
# GID index that is not there.
/usr/bin/ip link set "$a" mtu 1500
/usr/bin/ethtool -A "$a" autoneg off rx on tx off
/usr/bin/ip link set "$b" down
export NCCL_IB_GID_INDEX=9 NCCL_IB_TC=106
printf 'NCCL_IB_SL=3\nNCCL_IB_TC=41\n' >/etc/nccl.conf
sleep 3
stage after
save index-gdrcheck /tmp/gdrcheck perf loopback --dev rxe0 --gid-index 9 --duration 1s
save index-ib_write_bw timeout 20 /usr/bin/ib_write_bw -d rxe0 -x 9 -n 5
exit 0
