"""Speed and memory of this project beside PyTorch and DyNet on the same work, in one run.

`rows.py` says what is measured and what is aimed at; `launch/benchmark.py` runs it. Each peer lives
in one file, `torch_peer.py` and `dynet_peer.py`, and runs in a process of its own (`worker.py`).
"""
