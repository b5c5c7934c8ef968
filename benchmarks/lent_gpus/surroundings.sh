# source this on the GPU machine: the tuner's own environment (the engine's is in the space file).
export PATH=/opt/torch/.venv/bin:$PATH PYTHONUNBUFFERED=1
CUDA_HOME=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")")}
export CUDA_HOME PATH=$CUDA_HOME/bin:$PATH
libraries=$(ls -d /opt/torch/.venv/lib/python3.12/site-packages/nvidia/cu13/lib 2>/dev/null || true)
export LD_LIBRARY_PATH=$libraries:${LD_LIBRARY_PATH:-}
export PYTHONPATH=/tmp/tuner:$PWD QUIETLANE_ENGINE=/opt/torch/.venv/bin/python3 QUIETLANE_TINYMTP=/tmp/m/tinymtp
export PREFECT_HOME=/tmp/prefect
# NVLink multicast stays off on shared machines.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
