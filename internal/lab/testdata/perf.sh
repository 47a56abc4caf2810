pair="--footprint 1M --idle 30s"
for op in write write_imm read send; do
  # shellcheck disable=SC2086
  loopback "sweep-$op.json" $pair --op $op --measure bandwidth --size 1:8M --count 6 --warm-up 1
done
# shellcheck disable=SC2086
{
  loopback latency.json $pair --op write,write_imm,read,send --measure latency --size 2,4096,64K --count 100 --warm-up 10
  loopback datagrams.json $pair --op send --transport UD --size 1,64,4096 --count 300 --warm-up 10
  loopback both.json $pair --op write,read,send --measure bandwidth --bidirectional --qps 2 --count 50 --warm-up 4
  loopback by-time.json $pair --op write,send --duration 500ms --warm-up 4 --interval 50ms
  loopback events.json $pair --op write,send --measure bandwidth --events --count 100 --post-list 4 --warm-up 4
}
for round in 1 2 3; do
  rivals ib_write_bw write-bandwidth-$round.rival --report_gbits -n 500
  loopback write-bandwidth-$round.json --one-buffer --measure bandwidth --count 500 --idle 30s
  rivals ib_write_lat write-latency-$round.rival -n 1000
  loopback write-latency-$round.json --one-buffer --measure latency --idle 30s --count 1000
done
# shellcheck disable=SC2043
for op in send; do
  rivals ib_${op}_bw $op-bandwidth-1.rival --report_gbits -n 500
  loopback $op-bandwidth-1.json --one-buffer --op $op --measure bandwidth --count 500 --idle 30s
  rivals ib_${op}_lat $op-latency-1.rival -n 1000
  loopback $op-latency-1.json --one-buffer --op $op --measure latency --count 1000 --idle 30s
done
rivals ib_read_lat read-latency-1.rival -n 1000
loopback read-latency-1.json --one-buffer --op read --measure latency --count 1000 --idle 30s
