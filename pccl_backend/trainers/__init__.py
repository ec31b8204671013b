"""Training loops that survive the loss of a peer and take in new ones.

They are written against the public API only: read one before you write your own.
"""

from pccl_backend.trainers.diloco import DiLoCo, Observer, OuterStep

__all__ = ["DiLoCo", "Observer", "OuterStep"]
