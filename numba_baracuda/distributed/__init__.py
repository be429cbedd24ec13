"""Ops whose operands are divided among processes: local ops, one exchange of their states, and a merge in the order of ranks."""

from .axis import FUNCTIONS as _AXIS
from .axis_gradients import FUNCTIONS as _AXIS_GRADIENTS
from .communicator import Communicator as Communicator
from .communicator import Pending as Pending
from .communicator import communicator as communicator
from .communicator import part as part
from .in_process import InProcessCommunicator as InProcessCommunicator
from .loss import fused_linear_cross_entropy as fused_linear_cross_entropy
from .nccl import NcclCommunicator as NcclCommunicator
from .rows import FUNCTIONS as _ROWS
from .torch_group import TorchCommunicator as TorchCommunicator

globals().update(_AXIS | _AXIS_GRADIENTS | _ROWS)
_NAMES = (
    "Communicator", "InProcessCommunicator", "NcclCommunicator", "Pending", "TorchCommunicator", "communicator", "fused_linear_cross_entropy", "part",
)  # fmt: skip
__all__ = sorted([*_NAMES, *_AXIS, *_AXIS_GRADIENTS, *_ROWS])
