#!/usr/bin/env bash
# probe.sh TUNER SECONDS [MODEL [CANDIDATES.json]]: on the GPU machine: the doctor, then the all-reduce probe of every
# setting of interconnect/nccl_settings.yaml (or of the file) with MODEL's message sizes; begins no setting after SECONDS.
# $OUT gets doctor.json and probe.json. TUNER holds tuner.txz. Unpack the engine first (unpack_engine.sh) if settings of
# SGLang's and FlashInfer's own all-reduces shall be tried; NCCL's need only torch.
set -uo pipefail
tuner=${1:?}; seconds=${2:?}; model=${3:-/tmp/m/tinymtp}; candidates=${4:-}
[ -e /tmp/tuner/prefect ] || tar -xJf "$tuner/tuner.txz" -C /tmp
mkdir -p /tmp/m
[ -e /tmp/m/tinymtp ] || tar -xJf models/tinymtp.tar.xz -C /tmp/m
# shellcheck source=/dev/null
source benchmarks/lent_gpus/surroundings.sh
python3 -c "import sys; from interconnect.doctor import run; run(False, sys.stdout, '$QUIETLANE_ENGINE', '$model')"
python3 -c "import sys; from interconnect.doctor import run; run(True, sys.stdout, '$QUIETLANE_ENGINE', '$model')" >"${OUT:?}/doctor.json"
cd /tmp && python3 "$OLDPWD/benchmarks/lent_gpus/probe.py" "$OUT" "$seconds" "$model" ${candidates:+"$OLDPWD/$candidates"}
status=$?
pgrep -fa probe_child || echo "no rank of the probe is left"
exit "$status"
