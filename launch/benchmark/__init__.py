"""Comparison of training and scoring speed with PyTorch."""
