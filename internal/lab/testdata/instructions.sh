# Counts the instructions of $messages messages, by valgrind: of perftest's client
# and of gdrcheck's loops (loops.c). The other ends run as they are.
cp /host/valgrind/* /host/loops /tmp/
export VALGRIND_LIB=/tmp
count() { # name, valgrind's options, program and options
  name=$1
  shift
  save "$name.log" taskset 2 /tmp/valgrind --tool=callgrind --dump-instr=yes --compress-pos=no --compress-strings=no \
    --callgrind-out-file=$out/"$name" "$@"
}
for op in write send read; do
  for measure in bandwidth latency; do
    case $measure in
    bandwidth) program=ib_${op}_bw options="-s 65536 -t 128 -Q 1 -l 1" ;;
    latency) program=ib_${op}_lat options="-s 2" ;;
    esac
    # shellcheck disable=SC2086
    {
      taskset 1 $program -d rxe1 -x 1 -F -n "$messages" $options >$out/$op-$measure.server 2>&1 &
      listening
      count $op-$measure.perftest $program -d rxe0 -x 1 -F -n "$messages" $options 127.0.0.1
      wait
    }
    count $op-$measure.gdrcheck --toggle-collect=gdr_$measure /tmp/loops rxe0 rxe1 $op $measure "$messages"
  done
done
exit 0
