#!/bin/sh
# the fastest configuration that quietlane found for /tmp/m/tinymtp
# study nextn-h200, trial 6 (p2p=off nccl_proto=LL)
# measured with python 3.12.3, torch 2.11.0, triton 3.6.0, transformers 5.17.0, nvidia-nccl-cu13 2.28.9
# c1: 394.2 against 314.7 tok/s, 25.3 % faster
# c4: 1,545.1 against 1,147.1 tok/s, 34.7 % faster
# c8: 2,594.5 against 2,258.8 tok/s, 14.9 % faster
# c16: 5,010.3 against 4,147.7 tok/s, 20.8 % faster
set -eu
export HF_HUB_OFFLINE=1
export NCCL_NVLS_ENABLE=0
export NCCL_P2P_DISABLE=1
export NCCL_PROTO=LL
export NVSHMEM_DISABLE_NVLS=1
export PYTHONPATH=/tmp/site
export SGLANG_ENABLE_JIT_DEEPGEMM=0
export SGLANG_IS_FLASHINFER_AVAILABLE=false
export SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2=0
export TOKENIZERS_PARALLELISM=false
export TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export TRANSFORMERS_OFFLINE=1
export TVM_FFI_CACHE_DIR=/tmp/tvmcache
exec /opt/torch/.venv/bin/python3 -m sglang.launch_server \
  --host 127.0.0.1 \
  --port 30000 \
  --attention-backend triton \
  --chunked-prefill-size 8192 \
  --context-length 8192 \
  --cuda-graph-backend-decode full \
  --cuda-graph-backend-prefill disabled \
  --cuda-graph-max-bs-decode 16 \
  --disable-custom-all-reduce \
  --enforce-disable-flashinfer-allreduce-fusion \
  --grammar-backend none \
  --linear-attn-backend triton \
  --max-running-requests 32 \
  --mem-fraction-static 0.5 \
  --mm-feature-transport cpu \
  --model-path /tmp/m/tinymtp \
  --moe-runner-backend triton \
  --num-continuous-decode-steps 1 \
  --sampling-backend pytorch \
  --skip-server-warmup \
  --tp-size 2 \
  --watchdog-timeout 900 "$@"
