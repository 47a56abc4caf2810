# Runs in each of two virtual nodes, joined by two cables: eth0 is for control
# connections, rxe0 is on eth1. The nodes share /mnt; $role is server or client.
# The second serial port is the machine's own monitor, to pull its cables.
out=/host/out
mkdir -p $out
cp /host/gdrcheck /tmp/
ulimit -l unlimited
mount -t 9p -o trans=virtio,version=9p2000.L common /mnt || exit 1

[ $role = server ] && self=1 peer=2 || self=2 peer=1
/usr/bin/ip link set lo up
/usr/bin/ip addr add 10.1.0.$self/24 dev eth0
/usr/bin/ip addr add 10.2.0.$self/24 dev eth1
/usr/bin/ip link set eth0 up
/usr/bin/ip link set eth1 mtu 4200 up
sleep 3
/usr/bin/rdma link add rxe0 type rxe netdev eth1 || exit 1
sleep 1
stty -F /dev/ttyS1 raw -echo

cable() { # data or control, on or off
  dev=eth0 up=1
  [ "$1" = data ] && dev=eth1
  [ "$2" = off ] && up=0
  date +%s >$out/"$1-$2"
  # The first words may be lost in the monitor's greeting.
  until [ "$(cat /sys/class/net/$dev/carrier)" = $up ]; do
    echo "set_link $1 $2" >/dev/ttyS1
    sleep 0.5
  done
}
state() { # file, wanted: the port's, when it is that
  tries=0
  until /usr/bin/rdma link show rxe0/1 | tee $out/"$1" | grep -q "$2" || [ $tries -ge 100 ]; do
    tries=$((tries + 1))
    sleep 0.2
  done
}
wait_for() { # file of the other node
  tries=0
  until [ -s /mnt/"$1" ]; do
    tries=$((tries + 1))
    [ $tries -lt 3000 ] || exit 1
    sleep 0.2
  done
}
tell() { echo now >/mnt/"$1"; }
resources() { # name: what is registered, by anybody
  for kind in qp mr; do
    /usr/bin/rdma -j resource show $kind | tr ',' '\n' | grep -c '"pid"' >$out/"$1.${kind}s"
  done
}

if [ $role = server ]; then
  resources before
  {
    /tmp/gdrcheck perf server --dev rxe0 --listen 10.1.0.1 --token-file /mnt/token 2>&1 >/dev/null
    echo "exit status $?"
  } | while read -r line; do echo "$(date +%s) $line"; done >$out/server.log &
  # The client asks for what is to happen at this end.
  wait_for pull
  cable data off
  tell pulled
  wait_for plug
  cable data on
  state plugged ACTIVE
  tell plugged
  wait_for done
  resources after
  kill -INT "$(pidof gdrcheck)" # one: workers live only while a test runs
  wait
  tell stopped
  exit 0
fi

client() { # name, options: its output, exit status, and when it ended
  name=$1
  shift
  /tmp/gdrcheck perf client 10.1.0.1 --token-file /mnt/token --wait 120s --dev rxe0 -o json --footprint 1M "$@" >$out/"$name" 2>$out/"$name.err"
  echo $? >$out/"$name.rc"
  date +%s >$out/"$name.ended"
}
running() { # waits until a run is under way
  tries=0
  until [ "$(/usr/bin/rdma -j resource show qp | tr ',' '\n' | grep -c '"pid"')" -ge 1 ] || [ $tries -ge 300 ]; do
    tries=$((tries + 1))
    sleep 0.2
  done
  sleep 3
}
short="--count 100 --warm-up 8"
long="--measure bandwidth --duration 120s"
ping -c 1 10.2.0.1 >/dev/null
wait_for token
resources before
client operations --op write,write_imm,read,send $short
client reverse --reverse --measure bandwidth --op read $short
client sizes --measure bandwidth --size 1,1M,8M --count 4 --depth 2 --warm-up 1 --footprint 16M

# This node's data cable is pulled in the middle of a run.
(running; cable data off; state pulled DOWN) &
client here $long
wait
cable data on
state plugged ACTIVE
client after-here --measure bandwidth $short

# The server's: the run's packets vanish on their way. With 7, its most, Soft-RoCE
# would retry for ever.
(running; tell pull) &
client there $long --retry 3
tell plug
wait_for plugged
client after-there --measure bandwidth $short

# The control cable, while data flows on.
(running; cable control off) &
client deaf $long
cable control on
client after-deaf --measure bandwidth $short
resources after
tell done
wait_for stopped
exit 0
