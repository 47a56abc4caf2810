# gdrcheck perf server and client, each with a device of its own, in all that can
# happen to them.
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
