# GPU memory over Soft-RoCE: the GPUs are doubles whose memory is the host's, the
# verbs, the registrations and the traffic are real.
export GDRCHECK_NVML_LIBRARY=/host/libnvml-stub.so LAB_GPUS="0000:10:00.0 0000:30:00.0"
export GDRCHECK_CUDA_LIBRARY=/host/libcuda-stub.so GDR_STUB_CUDA_OPEN=1 # Soft-RoCE is the CPU
pair="--footprint 1M --idle 30s"
for op in write write_imm read send; do
  # shellcheck disable=SC2086
  loopback "sweep-$op.json" $pair --mem cuda --gpu 0 --peer-mem cuda --peer-gpu 0000:30:00.0 --op $op --measure bandwidth --size 1:8M --count 6 --warm-up 1
done
# shellcheck disable=SC2086
{
  loopback latency.json $pair --mem auto --op write,write_imm,read,send --measure latency --size 2,4096,64K --count 100 --warm-up 10
  loopback polled.json $pair --mem host --peer-mem cuda --op write --measure latency --count 100 --warm-up 10
  loopback datagrams.json $pair --mem cuda --op send --transport UD --size 1,64,4096 --count 300 --warm-up 10
  loopback to-gpu.json $pair --mem host --peer-mem cuda-vmm,peermem --op write,read,send --measure bandwidth --bidirectional --count 50 --warm-up 4
  loopback from-gpu.json $pair --mem cuda,peermem --peer-mem host --op write,read --duration 500ms --warm-up 4
  loopback dmabuf.json $pair --mem cuda,dmabuf --op write --measure bandwidth --count 50
}
GDR_STUB_CUDA=cuMemAlloc_v2:2 loopback memory.json --mem cuda --op write --measure bandwidth
GDRCHECK_STUB_MODE=mismatch loopback mismatch.json --mem cuda --op write --measure bandwidth
GDR_STUB_CUDA=cuDevicePrimaryCtxRetain:crash loopback crash.json --mem cuda --op write --measure bandwidth
save probe.json /tmp/gdrcheck check --probe --force --only gdr-registration -o json
save idle.json /tmp/gdrcheck check --probe --only gdr-registration -o json --record $out/probe.rec
save again.json /tmp/gdrcheck check --from $out/probe.rec --only gdr-registration -o json
