"""Ops whose operands are divided among processes: local ops, one exchange of their states, and a merge in the order of ranks."""

from .communicator import Communicator, Pending, communicator, part
from .in_process import InProcessCommunicator
from .loss import fused_linear_cross_entropy
from .torch_group import TorchCommunicator

__all__ = ["Communicator", "InProcessCommunicator", "Pending", "TorchCommunicator", "communicator", "fused_linear_cross_entropy", "part"]
