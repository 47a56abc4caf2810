# Runs in each of two virtual nodes, joined by three cables: eth0 is for control
# connections, eth1 and eth2 have a Soft-RoCE device each. The client's devices
# are named the other way round than the server's: only networks tell which two
# belong together. The nodes share /mnt; $role is server or client.
out=/host/out
mkdir -p $out
cp /host/gdrcheck /tmp/
ulimit -l unlimited
mount -t 9p -o trans=virtio,version=9p2000.L common /mnt || exit 1

[ $role = server ] && self=1 first=rxe0 second=rxe1 || self=2 first=rxe1 second=rxe0
/usr/bin/ip link set lo up
for i in 0 1 2; do
  /usr/bin/ip addr add 10.$((i + 1)).0.$self/24 dev eth$i
  /usr/bin/ip link set eth$i mtu $([ $i = 0 ] && echo 1500 || echo 4200) up
done
sleep 3
/usr/bin/rdma link add $first type rxe netdev eth1 || exit 1
/usr/bin/rdma link add $second type rxe netdev eth2 || exit 1
sleep 1

wait_for() { # file of the other node
  tries=0
  until [ -s /mnt/"$1" ]; do
    tries=$((tries + 1))
    [ $tries -lt 3000 ] || exit 1
    sleep 0.2
  done
}
tell() { echo now >/mnt/"$1"; }
save() { # name, command: its output, exit status and the seconds it took
  name=$1
  shift
  began=$(date +%s)
  "$@" >$out/"$name" 2>$out/"$name.err"
  echo $? >$out/"$name.rc"
  echo $(($(date +%s) - began)) >$out/"$name.seconds"
}
resources() { # name: what is registered, by anybody
  for kind in qp mr; do
    /usr/bin/rdma -j resource show $kind | tr ',' '\n' | grep -c '"pid"' >$out/"$1.${kind}s"
  done
}

if [ $role = server ]; then
  resources before
  /tmp/gdrcheck perf server --listen 10.1.0.1 --token-file /mnt/token >/dev/null 2>$out/server.log &
  wait_for unplug
  /usr/bin/ip link set eth2 down
  sleep 1
  tell unplugged
  wait_for done
  resources after
  kill -INT "$(pidof gdrcheck)" # one: workers live only while a test runs
  wait
  tell stopped
  exit 0
fi

client="/tmp/gdrcheck perf client 10.1.0.1 --token-file /mnt/token --wait 120s --all --footprint 1M --count 60 --warm-up 4"
for i in 1 2 3; do ping -c 1 10.$i.0.1 >/dev/null; done
wait_for token
resources before
# shellcheck disable=SC2086
{
  save all $client -o json -o table=$out/all.table
  tell unplug
  wait_for unplugged
  save unplugged $client --op write --measure bandwidth -o json
}

# Each port with itself, beside the checks; and the same out of the recording.
check="/tmp/gdrcheck check --perf --perf-budget 60s"
# shellcheck disable=SC2086
save check $check --record /tmp/node.rec -o json -o table=$out/check.table
save again /tmp/gdrcheck check --from /tmp/node.rec -o json
save secret /tmp/gdrcheck snapshot --from /tmp/node.rec --redact -o /tmp/secret.rec
save redacted /tmp/gdrcheck check --from /tmp/secret.rec -o json
save loopback /tmp/gdrcheck perf loopback --all --op write,read --footprint 1M --count 60 --warm-up 4 -o json

# Somebody uses a port: it is left alone.
/tmp/gdrcheck perf loopback --dev rxe0 --measure bandwidth --duration 120s --footprint 1M >/dev/null 2>&1 &
job=$!
tries=0
until [ "$(/usr/bin/rdma -j resource show qp | tr ',' '\n' | grep -c '"pid"')" -ge 2 ] || [ $tries -ge 300 ]; do
  tries=$((tries + 1))
  sleep 0.2
done
sleep 3
# shellcheck disable=SC2086
save busy $check -o json
kill -INT $job
wait $job
resources after
tell done
wait_for stopped
exit 0
