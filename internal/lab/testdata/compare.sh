
# Comparisons of the routes, alone and through a server, and one whose data
# connection a firewall stops. Sizes and times are small: an emulated processor
# moves all of it.
common="--footprint 4M --warm-up 4 --idle 20s"
save loopback /tmp/gdrcheck perf compare loopback --dev rxe0 --peer-dev rxe1 $common --rounds 2 \
  --size 4K,64K,1M --duration 2s --depth 16 --measure bandwidth -o json -o table=$out/loopback.table
save latency /tmp/gdrcheck perf compare loopback --dev rxe0 --peer-dev rxe1 $common --rounds 2 \
  --size 64,64K,1M --count 50 --measure latency -o json -o table=$out/latency.table
save odd /tmp/gdrcheck perf loopback --dev rxe0 --peer-dev rxe1 $common --bidirectional --chunk 12K --chunks 3 \
  --size 1,12K,100001 --count 30 --measure bandwidth --route staged,tcp -o json

# GPUs that are doubles, whose copies are through long after they were started.
(
  export GDRCHECK_NVML_LIBRARY=/host/libnvml-stub.so LAB_GPUS="0000:10:00.0 0000:30:00.0" GDR_STUB_CUDA_LATE=2
  export GDRCHECK_CUDA_LIBRARY=/host/libcuda-stub.so GDR_STUB_CUDA_OPEN=1 GDR_STUB_CUDA_LIBRARY=/host/libcuda-stub.so
  save gpu /tmp/gdrcheck perf compare loopback --dev rxe0 --peer-dev rxe1 $common --rounds 1 --peer-gpu 0000:30:00.0 \
    --size 4K,1M --duration 2s --depth 16 -o json -o table=$out/gpu.table
  save copy /tmp/gdrcheck perf copy --gpu 1 --size 4K,1M --count 100 -o json
  mknod /dev/gdrdrv c 236 0
  export GDRCHECK_GDRCOPY_LIBRARY=/host/libgdrapi-stub.so
  save gdrcopy /tmp/gdrcheck check --probe --force --only gdrcopy-works -o json
)

/tmp/gdrcheck perf server --dev rxe1 --listen 10.0.0.2 --token-file /tmp/token >$out/server 2>$out/server.err &
server=$!
until [ -s /tmp/token ]; do sleep 0.2; done
save session /tmp/gdrcheck perf compare 10.0.0.2 --token-file /tmp/token --dev rxe0 $common --rounds 1 \
  --size 64K,1M --duration 2s --depth 16 -o json
# Nothing but the control connection and RDMA passes: there is no route for
# what goes to a port that the kernel handed out.
/usr/bin/ip rule add pref 1 to 10.0.0.2 ipproto 6 dport 32768-60999 unreachable >$out/rules 2>&1
/usr/bin/ip rule >>$out/rules
save stopped /tmp/gdrcheck perf compare 10.0.0.2 --token-file /tmp/token --dev rxe0 $common --rounds 2 \
  --size 64K --duration 1s --depth 16 --measure bandwidth -o json
kill $server
wait $server
true
