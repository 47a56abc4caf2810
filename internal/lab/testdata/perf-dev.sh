
/usr/bin/ip rule
ping -c 1 -W 2 10.0.0.2
/tmp/gdrcheck perf loopback --dev rxe0 --peer-dev rxe1 --footprint 1M --count 200 --warm-up 20 2>&1
/tmp/gdrcheck perf loopback --dev rxe0  --op read,send --measure bandwidth --footprint 1M --count 300 --warm-up 20 2>&1
/tmp/gdrcheck perf loopback --dev rxe0  --bidirectional --op send --qps 3 --measure bandwidth --footprint 1M --count 100 --warm-up 20 2>&1
/tmp/gdrcheck perf loopback --dev rxe0 --footprint 1M --duration 500ms --op send --warm-up 10 2>&1
/tmp/gdrcheck perf loopback --dev rxe0 --events --size 64K --op send --footprint 1M --count 200 2>&1
/tmp/gdrcheck perf loopback --dev rxe0 --size 1:8M --footprint 16M --count 20 --warm-up 2 2>&1
time rivals ib_write_bw x -n 300; cat $out/x $out/x.err
time rivals ib_write_lat x -n 1000; cat $out/x $out/x.err
exit 0
