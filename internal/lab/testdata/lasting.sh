# $tests tests in one server: what it holds after the first round of them and at
# the end.
/tmp/gdrcheck perf server --dev rxe1 --listen 127.0.0.1 --token-file /tmp/lasting >$out/server 2>$out/server.err &
server=$!
until [ -s /tmp/lasting ] || ! kill -0 $server; do sleep 0.1; done
holds() { # name: of the server's process; workers are gone between tests
  sleep 2
  ls /proc/$server/fd | wc -l >$out/"$1.files"
  cat /proc/$server/task/*/children | wc -w >$out/"$1.children"
  grep -E '^(VmRSS|Threads):' /proc/$server/status >$out/"$1.status"
  for kind in qp mr cq pd ctx; do
    /usr/bin/rdma -j resource show $kind | tr ',' '\n' | grep -c '"pid"'
  done | tr '\n' ' ' >$out/"$1.rdma"
}
eight() { # name: eight tests in one session
  save "$1" /tmp/gdrcheck perf client 127.0.0.1 --token-file /tmp/lasting --dev rxe0 --op write,write_imm,read,send \
    --size 4096 --count 20 --warm-up 2 --footprint 256K --idle 60s -o json
}
holds none
eight 0
holds few
i=8
while [ $i -lt "$tests" ]; do
  eight $i
  i=$((i + 8))
done
holds all
kill -INT $server
wait $server
echo $? >$out/server.rc
