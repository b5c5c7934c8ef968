"""The real SGLang on a machine without a GPU: installing it, what stands in for its kernels, and a small model.

Run ``python -m engine.cpu.prepare`` once; then start ``python -m sglang.launch_server`` of that environment with the
variables of :func:`engine.cpu.program.cpu_environment`.
"""
