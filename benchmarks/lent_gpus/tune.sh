#!/usr/bin/env bash
# tune.sh TUNER SECONDS [quietlane tune arguments]: on the GPU machine, after unpack_engine.sh: the flow itself, for at
# most SECONDS, then everything it left as $OUT/tune.txz. TUNER holds tuner.txz (Prefect, Optuna, SQLAlchemy).
set -uo pipefail
tuner=${1:?}; seconds=${2:?}; shift 2
[ -e /tmp/tuner/prefect ] || tar -xJf "$tuner/tuner.txz" -C /tmp
# shellcheck source=/dev/null
source benchmarks/lent_gpus/surroundings.sh
mkdir -p /tmp/run "${OUT:?}"; cd /tmp/run
export PYTHONPATH=$PYTHONPATH
echo "# quietlane tune $*" >tune.log; date -u >>tune.log
# A rehearsal of a few seconds first: a mistake of ours must not cost a launch.
timeout 100 python3 -m flows.cli tune nextn --engine rehearsal --trials 3 --output /tmp/rehearsed \
  --storage sqlite:////tmp/rehearsed.db 2>&1 | tail -8
[ "${PIPESTATUS[0]}" -eq 0 ] || exit 1
timeout -s INT -k 30 "$seconds" python3 -m flows.cli tune "$@" --output /tmp/run/runs --storage sqlite:////tmp/run/quietlane.db \
  2>&1 | tee -a tune.log
status=${PIPESTATUS[0]}
python3 - <<'P'
import sqlite3
sqlite3.connect("/tmp/run/quietlane.db").execute("PRAGMA wal_checkpoint(TRUNCATE)")
P
tar -C /tmp -cJf "$OUT/tune.txz" run
nvidia-smi --query-compute-apps=pid,used_memory --format=csv; pgrep -fa sglang || echo "no engine process is left"
exit "$status"
