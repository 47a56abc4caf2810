# $together loopbacks at the same time over all devices, in both directions of
# each pair, by polling and by events, and one more that is killed in the middle.
sent() { # name: bytes that each interface has sent
  i=0
  while [ $i -lt $((2 * pairs)) ]; do
    cat /sys/class/net/v$i/statistics/tx_bytes
    i=$((i + 1))
  done >$out/"$1"
}
# Two emulated CPUs leave a test without its turn for seconds: at the default
# timeout of 67 ms Soft-RoCE sends all again, and stumbles over that.
options="-o json --measure bandwidth --footprint 256K --idle 120s --timeout 20"

sent before
resources before.resources
# shellcheck disable=SC2086
/tmp/gdrcheck perf loopback --dev rxe0 --peer-dev rxe1 $options --duration 600s >/dev/null 2>$out/killed.err &
victim=$!
began=$(date +%s)
set --
i=0
while [ $i -lt $together ]; do
  a=$((2 * (i % pairs))) b=$((2 * (i % pairs) + 1))
  [ $((i / pairs % 2)) = 0 ] || { a=$b b=$((2 * (i % pairs))); }
  case $((i / (2 * pairs) % 4)) in
  0) op=write ;;
  1) op=read ;;
  2) op=send ;;
  3) op=write_imm ;;
  esac
  [ $((i % 3)) = 0 ] && events=--events || events=
  # shellcheck disable=SC2086
  /tmp/gdrcheck perf loopback --dev rxe$a --peer-dev rxe$b $options --op $op --size 16K --count $((200 + i)) --warm-up 8 --depth 4 $events \
    >$out/$i.json 2>$out/$i.err &
  set -- "$@" $!
  i=$((i + 1))
done
tries=0
until resources during && [ "$(cat $out/during.qps)" -ge 4 ] || [ $tries -ge 300 ]; do
  tries=$((tries + 1))
  sleep 0.2
done
kill -9 $victim
i=0
for pid; do
  wait "$pid"
  echo $? >$out/$i.json.rc
  i=$((i + 1))
done
echo $(($(date +%s) - began)) >$out/seconds
sleep 1
resources after.resources
sent after
