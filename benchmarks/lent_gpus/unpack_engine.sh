#!/usr/bin/env bash
# unpack_engine.sh DIR: on a GPU machine without a network, once: unpacks DIR/site.txz (SGLang and what it imports), the
# caches of compiled kernels beside it, and the project's small model. The machine brings Python, torch and CUDA.
set -euo pipefail
payload=${1:?usage: unpack_engine.sh DIR}
[ -e /tmp/site/sglang ] || tar -xJf "$payload/site.txz" -C /tmp
if [ -e "$payload/jit-tvm.txz" ] && [ ! -e /tmp/tvmcache ]; then
  tar -xJf "$payload/jit-tvm.txz" -C /tmp
  find /tmp/tvmcache -type f -name '*lock' -delete
  find /tmp/tvmcache -exec touch {} +   # caches older than their sources are compiled anew
fi
[ -e ~/.triton ] || [ ! -e "$payload/jit-triton.txz" ] || tar -xJf "$payload/jit-triton.txz" -C ~
mkdir -p /tmp/m
[ -e /tmp/m/tinymtp ] || tar -xJf models/tinymtp.tar.xz -C /tmp/m
nvidia-smi topo -m
nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current --format=csv
