# Runs first in a virtual node: pairs of Soft-RoCE devices, each pair on the two
# ends of a virtual cable, and what the scripts behind it call.
out=/host/out
mkdir -p $out
cp /host/gdrcheck /tmp/
ulimit -l unlimited

/usr/bin/ip link set lo up
interface() { # number, its peer's, address, its peer's
  /usr/bin/ip addr add "$3"/24 dev "v$1"
  /usr/bin/ip link set "v$1" mtu 9000 up
  # Both addresses are this node's, and would meet on its loopback interface:
  # local delivery is for what comes in, and what goes out takes the pair.
  echo 1 >/proc/sys/net/ipv4/conf/v"$1"/accept_local
  echo 0 >/proc/sys/net/ipv4/conf/v"$1"/rp_filter
  /usr/bin/ip rule add pref 1 iif "v$1" lookup local
  /usr/bin/ip rule add pref 2 to "$4" lookup $((10 + $1))
  /usr/bin/ip route add "$4" dev "v$1" src "$3" table $((10 + $1))
}
i=0
while [ $i -lt ${pairs:-1} ]; do
  a=$((2 * i)) b=$((2 * i + 1))
  /usr/bin/ip link add v$a type veth peer name v$b
  interface $a $b 10.0.$i.1 10.0.$i.2
  interface $b $a 10.0.$i.2 10.0.$i.1
  i=$((i + 1))
done
/usr/bin/ip rule add pref 100 lookup local
/usr/bin/ip rule del pref 0
sleep 1
i=0
while [ $i -lt $((2 * ${pairs:-1})) ]; do
  /usr/bin/rdma link add rxe$i type rxe netdev v$i
  i=$((i + 1))
done
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
  save "$name" /tmp/gdrcheck perf loopback --dev rxe0 --peer-dev rxe1 -o json "$@"
}
listening() { # waits until perftest's server does, on port 18515
  tries=0
  until grep -q ':4853 [0:]* 0A' /proc/net/tcp /proc/net/tcp6; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || break
    sleep 0.1
  done
}
rivals() { # program, name, options: server on one CPU, client on the other
  program=/usr/bin/$1 name=$2
  shift 2
  taskset 1 "$program" -d rxe1 -x 1 -F "$@" >$out/"$name.server" 2>&1 &
  server=$!
  listening
  save "$name" taskset 2 "$program" -d rxe0 -x 1 -F "$@" 127.0.0.1
  kill $server 2>/dev/null # it has ended, unless the client failed
  wait $server
}
resources() { # name: what is registered on all devices, by anybody
  for kind in qp mr; do
    /usr/bin/rdma -j resource show $kind | tr ',' '\n' | grep -c '"pid"' >$out/"$1.${kind}s"
  done
}
