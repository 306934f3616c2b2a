"""Comparison of this project with PyTorch and DyNet: speed and memory on the same work, in one run.

`rows.py` lists the benchmarks and their goals, and `launch/benchmark.py` runs them. The peers are
implemented in `torch_peer.py` and `dynet_peer.py`. Each peer runs in a separate process
(`worker.py`).
"""
