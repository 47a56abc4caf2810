# Runs in the virtual node: two Soft-RoCE devices on a pair of interfaces, every
# operation of gdrcheck perf between them, and perftest on the same ones.
out=/host/out
mkdir -p $out
cp /host/gdrcheck /tmp/
ulimit -l unlimited

/usr/bin/ip link set lo up
/usr/bin/ip link add v0 type veth peer name v1
for i in 0 1; do
  /usr/bin/ip addr add 10.0.0.$((i + 1))/24 dev v$i
  /usr/bin/ip link set v$i mtu 9000 up
done
# Both addresses are this node's, and would meet on its loopback interface: local
# delivery is for what comes in, and what goes out takes the pair.
for i in 0 1; do
  echo 1 >/proc/sys/net/ipv4/conf/v$i/accept_local
  echo 0 >/proc/sys/net/ipv4/conf/v$i/rp_filter
  /usr/bin/ip rule add pref 1 iif v$i lookup local
  /usr/bin/ip rule add pref 2 to 10.0.0.$((2 - i)) lookup $((10 + i))
  /usr/bin/ip route add 10.0.0.$((2 - i)) dev v$i src 10.0.0.$((i + 1)) table $((10 + i))
done
/usr/bin/ip rule add pref 100 lookup local
/usr/bin/ip rule del pref 0
sleep 1
/usr/bin/rdma link add rxe0 type rxe netdev v0
/usr/bin/rdma link add rxe1 type rxe netdev v1
sleep 1

save() { # name, command: its output and exit status
  name=$1
  shift
  "$@" >$out/"$name" 2>$out/"$name.err"
  echo $? >$out/"$name.rc"
}
loopback() { # name, options
  name=$1
  shift
  save "$name" /tmp/gdrcheck perf loopback --dev rxe0 -o json "$@"
}
rivals() { # program, name, options: server on one CPU, client on the other
  program=/usr/bin/$1 name=$2
  shift 2
  taskset 1 "$program" -d rxe1 -x 1 -F "$@" >$out/"$name.server" 2>&1 &
  server=$!
  tries=0
  until grep -q ':4853 [0:]* 0A' /proc/net/tcp /proc/net/tcp6; do # it listens on 18515
    tries=$((tries + 1))
    [ $tries -lt 100 ] || break
    sleep 0.2
  done
  save "$name" taskset 2 "$program" -d rxe0 -x 1 -F "$@" 127.0.0.1
  kill $server 2>/dev/null # it has ended, unless the client failed
  wait $server
}
