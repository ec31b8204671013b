"""Training loops that survive the loss of a peer and admit new ones.

They use the public API only. Read one before you write your own.
"""

from pccl_backend.trainers.ddp import DDP
from pccl_backend.trainers.diloco import DiLoCo, Observer, OuterStep

__all__ = ["DDP", "DiLoCo", "Observer", "OuterStep"]
