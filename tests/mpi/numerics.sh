#!/usr/bin/env bash
# A recorded decoder, trained under every schedule by processes: `tawpipe check-numerics --backend mpi` must pass.
# Not: other sizes and options (numerics/, by threads). Usage: numerics.sh MPIEXEC NUMPROC_FLAG TAWPIPE REFERENCE RANKS CLUSTER REPLICAS
set -euo pipefail
mpiexec=$1 flag=$2 tawpipe=$3 reference=$4 ranks=$5 cluster=$6 replicas=$7
failed=0 passed=0
for schedule in $("$tawpipe" list schedules --json - | sed -n 's/^    "name": "\(.*\)",$/\1/p'); do
  if output=$("$mpiexec" "$flag" "$ranks" "$tawpipe" check-numerics --backend mpi --reference "$reference" --schedule "$schedule" \
    --cluster "$cluster" --data-parallel "$replicas" --dtype f64 2>&1); then
    passed=$((passed + 1))
  elif grep -q '^tawpipe: .*\(needs\|must\|divide\|choose\)' <<<"$output"; then
    echo "$schedule refuses $cluster: $(grep -m1 '^tawpipe:' <<<"$output")"
  else
    echo "$schedule on $cluster:"
    echo "$output"
    failed=$((failed + 1))
  fi
done
echo "$passed schedules on $cluster, $replicas replicas, pass, $failed fail"
((failed == 0 && passed > 15))
