# Runs in the virtual node: two Soft-RoCE devices on a pair of interfaces, and
# gdrcheck perf server and client, each with one of them.
out=/host/out
mkdir -p $out
cp /host/gdrcheck /tmp/
ulimit -l unlimited

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
/usr/bin/ip link set lo up
sleep 1
/usr/bin/rdma link add rxe0 type rxe netdev v0
/usr/bin/rdma link add rxe1 type rxe netdev v1
sleep 1

server() { # options: starts one, and waits for its token
  rm -f /tmp/token
  /tmp/gdrcheck perf server --dev rxe1 --listen 127.0.0.1 --token-file /tmp/token "$@" >>$out/server 2>>$out/server.err &
  server=$!
  until [ -s /tmp/token ] || ! kill -0 $server; do sleep 0.1; done
}
client() { # name, options: its output, exit status and the seconds it took
  name=$1
  shift
  began=$(date +%s)
  /tmp/gdrcheck perf client 127.0.0.1 --token-file /tmp/token --dev rxe0 -o json --footprint 1M "$@" >$out/"$name" 2>$out/"$name.err"
  echo $? >$out/"$name.rc"
  echo $(($(date +%s) - began)) >$out/"$name.seconds"
}
resources() { # name: what is registered on both devices, by anybody
  /usr/bin/rdma -j resource show qp | tr ',' '\n' | grep -c '"pid"' >$out/"$1.qps"
  /usr/bin/rdma -j resource show mr | tr ',' '\n' | grep -c '"pid"' >$out/"$1.mrs"
}
short="--count 250 --warm-up 10"
running() { # waits until a run is under way: both ends hold a queue pair, and have for a moment
  tries=0
  until [ "$(/usr/bin/rdma -j resource show qp | tr ',' '\n' | grep -c '"pid"')" -ge 2 ] || [ $tries -ge 100 ]; do
    tries=$((tries + 1))
    sleep 0.2
  done
  sleep 2
}

server
resources before
client operations --op write,read,send $short
client reverse --reverse --measure bandwidth $short
client both --bidirectional --measure bandwidth $short --qps 2
client sizes --measure bandwidth --size 1,1M,8M --count 20 --depth 4 --warm-up 2 --footprint 16M

# The cable is pulled while the control connection stays.
(running; /usr/bin/ip link set v1 down) &
client unplugged --measure bandwidth --duration 30s
/usr/bin/ip link set v1 up
sleep 1
# Its routes went with the link.
/usr/bin/ip route add 10.0.0.1 dev v1 src 10.0.0.2 table 11
sleep 1
client plugged --measure bandwidth $short

# The client is killed in the middle of a run, and another is interrupted.
/tmp/gdrcheck perf client 127.0.0.1 --token-file /tmp/token --dev rxe0 --measure bandwidth --duration 60s >/dev/null 2>&1 &
victim=$!
running
resources during
kill -9 $victim
sleep 1
resources killed
client next --measure bandwidth $short
/tmp/gdrcheck perf client 127.0.0.1 --token-file /tmp/token --dev rxe0 --measure bandwidth --duration 60s >$out/interrupted 2>$out/interrupted.err &
victim=$!
running
kill -INT $victim
wait $victim
echo $? >$out/interrupted.rc

# The server is killed in the middle of a run.
(running; kill -9 $server) &
client orphaned --measure bandwidth --duration 60s
sleep 1
resources orphaned

# One that serves once, and one that is stopped.
server --once
client once --measure latency $short
wait $server
echo $? >$out/once-server.rc
server
kill -INT $server
wait $server
echo $? >$out/stopped-server.rc
resources after
exit 0
