# SPDX-License-Identifier: Apache-2.0
"""JigSaw for PyTorch: share GPUs by turns, backpropagate partially, synchronise only the gradients that exist.

    import jigsaw
    session = jigsaw.attach(model, optimizer=optimizer)
    for x, y in data:
        with session.iteration():
            loss_fn(model(x), y).backward()
        optimizer.step()

Runs under torchrun and srun, beside torch.distributed or without it, and as one process on a laptop. docs/python.md has the rest.
"""
from ._library import Disagree, Error, InvalidArgument, InvalidState, NoBackend, PeerLeft, Timeout

try:
    import torch as _torch  # noqa: F401
except ImportError as missing:
    raise ImportError(f"jigsaw: PyTorch is not there ({missing}); install it for this Python: apt install python3-torch, or "
                      "pip install torch") from missing

from ._session import Iteration, Session, attach

__version__ = "0.1.0"


def library_version() -> str:
    """Version of the libjigsaw in use."""
    from ._library import load

    return load().version()


__all__ = ["attach", "Session", "Iteration", "Error", "InvalidArgument", "InvalidState", "PeerLeft", "Timeout", "Disagree",
           "NoBackend", "library_version"]
