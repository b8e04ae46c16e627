"""Inference on a CPU: a model's encoder and decoder rewritten for it, their weights laid out once and rounded if asked for."""
