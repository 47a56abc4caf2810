# Measures by perftest, by perftest again and by gdrcheck, in turn, with the same
# parameters: $rounds times each, the first of a round another one every time.
one() { # tool, name, perftest's program and options, gdrcheck's options
  case $1 in
  gdrcheck)
    # shellcheck disable=SC2086
    loopback "$2.gdrcheck" --one-buffer --cpu 1 --peer-cpu 0 --idle 60s $4
    ;;
  # shellcheck disable=SC2086
  *) rivals $3 ;;
  esac
}
in_turn() { # name, perftest's program, its options, gdrcheck's options
  for i in 0 1 2; do
    case $(((round + i) % 3)) in
    0) one perftest "$1-$round" "$2 $1-$round.perftest $3" ;;
    1) one control "$1-$round" "$2 $1-$round.control $3" ;;
    2) one gdrcheck "$1-$round" "" "$4" ;;
    esac
  done
}
round=1
while [ $round -le "$rounds" ]; do
  for op in write send read; do
    # This perftest inlines nothing on a device that it does not know.
    inline="-I 0" ours="--inline 0"
    [ $op = read ] && inline="" ours=""
    in_turn $op-bandwidth ib_${op}_bw "-s 65536 -n 1000 -q 1 -t 128 -Q 1 -l 1 $inline" \
      "--op $op --measure bandwidth --size 64K --count 1000 --qps 1 --depth 128 --cq-mod 1 --post-list 1 --warm-up 128 $ours"
    in_turn $op-latency ib_${op}_lat "-s 2 -n 3000 $inline" \
      "--op $op --measure latency --size 2 --count 3000 --warm-up 100 $ours"
  done
  echo "lab: round $round of $rounds"
  round=$((round + 1))
done
exit 0
