# SPDX-License-Identifier: Apache-2.0
"""One flat gradient buffer per block, each parameter's view into it, and the hooks that say when a gradient is there.

A gradient is copied into its buffer rather than accumulated there: the bits are those of plain training (0 + -0 is not -0), and
zero_grad() of the user's does no harm. A rank that is alone has no buffers: its gradients stay where autograd put them. Freezing toggles requires_grad before forward, which costs nothing and leaves all other
gradients bit-identical.
"""
from __future__ import annotations

import math
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

import torch

from ._blocks import C_TYPES, Parameter
from ._library import Block, InvalidArgument


class Hooks:
    """Calls `arrived(i)` when autograd has stored the gradient of a watched parameter i, while `armed`.

    The hooks hang on autograd's accumulators, survive freezing, and hold this object weakly: it dies with its owner.
    """

    def __init__(self, trained: Sequence[Parameter]) -> None:
        self.armed = False
        self.arrived: Callable[[int], None] = lambda i: None
        self._accumulators: List[Any] = []  # parameters hold theirs weakly
        self._handles: Dict[int, Any] = {}
        with torch.enable_grad():
            for parameter in trained:
                self._accumulators.append(parameter.tensor.expand_as(parameter.tensor).grad_fn.next_functions[0][0])
        self.watch(range(len(trained)))

    def _hook(self, i: int) -> Callable[..., None]:
        weak = weakref.ref(self)

        def hook(*_: Any) -> None:
            hooks = weak()
            if hooks is not None and hooks.armed:
                hooks.arrived(i)

        return hook

    def watch(self, parameters: Iterable[int]) -> None:
        """These besides those that are watched."""
        for i in parameters:
            if i not in self._handles and self._accumulators:
                self._handles[i] = self._accumulators[i].register_hook(self._hook(i))

    def ignore(self, parameters: Iterable[int]) -> None:
        for i in parameters:
            if i in self._handles:
                self._handles.pop(i).remove()

    def remove(self) -> None:
        self.ignore(list(self._handles))
        self._accumulators = []


class Watch:
    """Which parameters need a hook. A hook in Python costs microseconds for each parameter in each backward pass, and a model that does
    the same in every iteration needs one for each block: on the parameter whose gradient comes last.

    So the order is noted for a few iterations, then only the last of each block is watched. A block that is not complete when its
    last gradient comes is watched in full for good, and so are all when gradients are accumulated over several passes, where a
    gradient that is there may be an older one. What is not seen in time is sent when the iteration ends: never wrongly, only later.
    """

    NOTED = 3

    def __init__(self, hooks: Hooks, flat: "FlatBlocks") -> None:
        self._hooks, self._flat = hooks, flat
        self._noted: List[List[int]] = []  # [iteration] last parameter of each block, -1: it was not complete
        self._last = [-1] * flat.count
        self._settled = False
        self.only = [False] * flat.count  # [block] its last parameter alone is watched
        hooks.watch(range(len(flat.tensors)))

    def note(self, i: int) -> None:
        self._last[self._flat.of_parameter[i]] = i

    def end_iteration(self, full: bool) -> None:
        """Iterations that compute all blocks count."""
        if self._settled or not full:
            return
        flat = self._flat
        self._noted.append([last if all(flat.done[i] for i in members) else -1
                            for last, members in zip(self._last, flat.members)])
        if len(self._noted) < self.NOTED:
            return
        self._settled = True
        for block, lasts in enumerate(zip(*self._noted)):
            if lasts[0] >= 0 and len(set(lasts)) == 1:
                self.only[block] = True
                self._hooks.ignore(i for i in flat.members[block] if i != lasts[0])

    def all_of(self, block: int) -> None:
        self.only[block] = False
        self._hooks.watch(self._flat.members[block])

    def all(self) -> None:
        self._settled = True
        for block in range(self._flat.count):
            if self.only[block]:
                self.all_of(block)


class FlatBlocks:
    """Buffers, views and what is missing of each block in this iteration."""

    def __init__(self, trained: Sequence[Parameter], of_parameter: Sequence[int], alone: bool) -> None:
        self.alone = alone
        self.names = [p.name for p in trained]
        self.tensors = [p.tensor for p in trained]
        self.of_parameter = list(of_parameter)
        self.count = max(of_parameter) + 1
        self.members: List[List[int]] = [[] for _ in range(self.count)]
        for i, block in enumerate(of_parameter):
            self.members[block].append(i)
        self.buffers: List[torch.Tensor] = []
        self.views: List[torch.Tensor] = [torch.empty(0)] * len(self.tensors)
        for members in self.members:
            if alone:  # a block for libjigsaw, which has nothing to do with it
                self.buffers.append(torch.zeros(1, device=self.tensors[members[0]].device))
            else:
                self._make_buffer(members)
        self._sizes = [len(members) for members in self.members]
        self.left = list(self._sizes)
        self.done = bytearray(len(self.tensors))
        self._versions: List[Optional[int]] = [None] * self.count  # of buffers once they are on their way
        self._frozen_below = 0

    def _make_buffer(self, members: List[int]) -> None:
        first = self.tensors[members[0]]
        size = sum(self.tensors[i].numel() for i in members)
        buffer = torch.empty(size, dtype=first.dtype, device=first.device)
        offset = 0
        with torch.no_grad():
            for i in members:
                numel = self.tensors[i].numel()
                self.views[i] = buffer.narrow(0, offset, numel).view(self.tensors[i].shape)
                offset += numel
        self.buffers.append(buffer)

    def c_blocks(self) -> Any:
        blocks = [Block(b.data_ptr(), b.numel(), C_TYPES[b.dtype], 0) for b in self.buffers]
        return (Block * self.count)(*blocks)

    def begin(self, depth: int) -> None:
        """Before forward: no gradients, and those beyond `depth` blocks from the loss frozen."""
        reset_gradients(self.tensors)
        self.freeze_below(self.count - depth)
        self.left[:] = self._sizes
        self.done[:] = bytes(len(self.done))
        self._versions = [None] * self.count

    def freeze_below(self, first: int) -> None:
        if first == self._frozen_below:
            return
        for tensor, block in zip(self.tensors, self.of_parameter):
            tensor.requires_grad_(block >= first)
        self._frozen_below = first

    def take(self, block: int) -> None:
        """This rank's gradients of the block move into its buffer; parameters without one count as zero there."""
        self.left[block] = 0
        if self.alone:
            return
        members = self.members[block]
        gradients = [self.tensors[i].grad for i in members]
        with torch.no_grad():
            if any(g is None for g in gradients):
                for i, gradient in zip(members, gradients):
                    self.views[i].zero_() if gradient is None else self.views[i].copy_(gradient)
            else:
                for i, gradient in zip(members, gradients):
                    if gradient.is_sparse:
                        raise InvalidArgument(f"jigsaw: parameter {self.names[i]} has a sparse gradient; make its module with "
                                              "sparse=False")
                torch.cat([g.reshape(-1) for g in gradients], out=self.buffers[block])
        for i in members:
            self.tensors[i].grad = self.views[i]
        self._versions[block] = self.buffers[block]._version

    def complete(self, block: int) -> bool:
        """Whether every parameter of the block has a gradient; of this pass, unless several are accumulated."""
        return all(self.tensors[i].grad is not None for i in self.members[block])

    def changed(self) -> Optional[int]:
        """A block whose buffer autograd has added to since it went on its way."""
        for block, version in enumerate(self._versions):
            if version is not None and self.buffers[block]._version != version:
                return block
        return None

    def publish(self, defined_blocks: int) -> None:
        """.grad of every parameter: its view where somebody computed the block, else None, so that optimizers skip it."""
        if self.alone:
            return
        for i, block in enumerate(self.of_parameter):
            self.tensors[i].grad = self.views[i] if defined_blocks >> block & 1 else None

    def defined(self, defined_blocks: int) -> List[torch.Tensor]:
        """All gradients: of few buffers, or, alone, of the parameters."""
        if self.alone:
            return [tensor.grad for tensor in self.tensors if tensor.grad is not None]
        return [buffer for block, buffer in enumerate(self.buffers) if defined_blocks >> block & 1]


def reset_gradients(tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        tensor.grad = None


def square_sum(buffers: Sequence[torch.Tensor]) -> float:
    """The same on every rank that holds the same bits: on one thread, since torch's sums depend on the number of threads."""
    threads = torch.get_num_threads()
    if threads != 1:
        torch.set_num_threads(1)
    try:
        norms = [float(torch.linalg.vector_norm(buffer, dtype=torch.float64)) for buffer in buffers]
    finally:
        if threads != 1:
            torch.set_num_threads(threads)
    return math.fsum(norm * norm for norm in norms)


def all_finite(buffers: Sequence[torch.Tensor]) -> bool:
    # A finite norm has finite parts; that of huge values may overflow, so look again.
    return all(math.isfinite(square_sum([buffer])) or bool(torch.isfinite(buffer).all()) for buffer in buffers)


def floating(tensors: Sequence[Optional[torch.Tensor]]) -> List[torch.Tensor]:
    return [t for t in tensors if t is not None and t.is_floating_point()]
