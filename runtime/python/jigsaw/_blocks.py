# SPDX-License-Identifier: Apache-2.0
"""Which parameters form which block: given by hand, or cut from the order in which gradients came.

A parameter may stand in any block without an error in its gradient: freezing any set of parameters leaves the gradients of all
others as they were. What the order of blocks decides is how much backward work a small depth saves.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ._library import BFLOAT16, FLOAT32, FLOAT64, MAX_BLOCKS, InvalidArgument

#: A block by hand: a module, the name of a module or of a parameter, or a list of these and of parameters.
BlockLike = Union[torch.nn.Module, str, torch.nn.Parameter, Sequence[Any]]

C_TYPES = {torch.float32: FLOAT32, torch.float64: FLOAT64, torch.bfloat16: BFLOAT16}


@dataclass
class Parameter:
    """A parameter that is trained, by the name that model.named_parameters() gives it."""

    name: str
    tensor: torch.Tensor

    @property
    def owner(self) -> str:
        return self.name.rpartition(".")[0]


def trained_parameters(model: torch.nn.Module) -> List[Parameter]:
    """Those that require a gradient now, each once (tied weights), in the order of registration.

    InvalidArgument names a parameter that cannot be synchronised and what to change.
    """
    out = []
    for name, tensor in model.named_parameters():
        if isinstance(tensor, torch.nn.parameter.UninitializedParameter):
            raise InvalidArgument(f"jigsaw: parameter {name} has no shape yet (a lazy module); run the model once before attach")
        if not tensor.requires_grad:
            continue
        if not tensor.is_leaf:
            raise InvalidArgument(f"jigsaw: parameter {name} is computed from others, not a leaf; attach before "
                                  "functional calls, or register what it is computed from")
        if tensor.dtype not in C_TYPES:
            raise InvalidArgument(f"jigsaw: parameter {name} is {tensor.dtype}; float32, float64 and bfloat16 can be "
                                  "synchronised. Keep float32 parameters and compute in half precision by torch.autocast")
        out.append(Parameter(name, tensor))
    if not out:
        raise InvalidArgument("jigsaw: the model has no parameter that requires a gradient; unfreeze what is to be trained")
    devices = sorted({str(p.tensor.device) for p in out})
    if len(devices) > 1:
        raise InvalidArgument(f"jigsaw: the model's parameters lie on {', '.join(devices)}; a rank's parameters lie on one "
                              "device: call model.to(device) before attach")
    kind = out[0].tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise InvalidArgument(f"jigsaw: the model is on device {devices[0]}; CPUs and NVIDIA GPUs are supported")
    return out


def refuse_wrapped(model: torch.nn.Module) -> None:
    """What cannot work with a changing depth, with the remedy."""
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"jigsaw: attach(model): the model is a {type(model).__name__}; give a torch.nn.Module")
    for name, module in model.named_modules():
        kind, home = type(module).__name__, type(module).__module__
        where = f"module {name or 'model'} is wrapped in {kind}"
        if kind == "DistributedDataParallel" or (kind == "DataParallel" and home.startswith("torch.")):
            raise InvalidArgument(f"jigsaw: {where}; JigSaw stands in its place: attach the bare module ({kind}.module)")
        if "FullyShardedDataParallel" in kind or kind.startswith("FSDP"):
            raise InvalidArgument(f"jigsaw: {where}, which shards parameters; JigSaw needs whole parameters on each rank: "
                                  "attach the bare module")
        if isinstance(module, torch.nn.SyncBatchNorm):
            raise InvalidArgument(f"jigsaw: module {name} is SyncBatchNorm, which waits for other ranks inside forward while "
                                  "this rank holds its turn; use BatchNorm and session.average_buffers() before evaluation")
        if getattr(module, "sparse", False) is True and isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            raise InvalidArgument(f"jigsaw: module {name} makes sparse gradients; make it with sparse=False")


def _tensors_of(item: Any, model: torch.nn.Module, block: int) -> List[torch.Tensor]:
    if isinstance(item, torch.nn.Module):
        return list(item.parameters())
    if isinstance(item, torch.Tensor):
        return [item]
    if isinstance(item, str):
        modules: Mapping[str, torch.nn.Module] = dict(model.named_modules())
        if item in modules:
            return list(modules[item].parameters())
        parameters = dict(model.named_parameters())
        if item in parameters:
            return [parameters[item]]
        names = ", ".join(name for name, _ in model.named_children())
        raise InvalidArgument(f"jigsaw: blocks[{block}]: the model has no module or parameter \"{item}\"; its children are {names}")
    if isinstance(item, (list, tuple)):
        return [tensor for part in item for tensor in _tensors_of(part, model, block)]
    raise InvalidArgument(f"jigsaw: blocks[{block}] is a {type(item).__name__}; a block is a module, a name, or a list of these "
                          "and of parameters")


def blocks_by_hand(blocks: Sequence[BlockLike], model: torch.nn.Module, trained: List[Parameter]) -> List[int]:
    """The block of each trained parameter. A parameter named in several blocks (tied weights) belongs to the first of them:
    depth counts its earliest use."""
    index = {id(p.tensor): i for i, p in enumerate(trained)}
    known = {id(tensor) for tensor in model.parameters()}
    of_parameter = [-1] * len(trained)
    for block, item in enumerate(blocks):
        for tensor in _tensors_of(item, model, block):
            if id(tensor) not in known:
                raise InvalidArgument(f"jigsaw: blocks[{block}] holds a parameter of shape {tuple(tensor.shape)} that is none of "
                                      "the model's; give modules and parameters of the attached model")
            i = index.get(id(tensor))
            if i is not None and of_parameter[i] < 0:
                of_parameter[i] = block
        if block not in of_parameter:
            raise InvalidArgument(f"jigsaw: blocks[{block}] has no parameter of its own that requires a gradient; merge it with "
                                  "a neighbour")
    left = [trained[i].name for i, block in enumerate(of_parameter) if block < 0]
    if left:
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        raise InvalidArgument(f"jigsaw: these parameters are in no block: {', '.join(left[:3])}{more}; name them in blocks, or "
                              "freeze them (requires_grad_(False)) before attach")
    return of_parameter


def check_blocks(of_parameter: List[int], trained: List[Parameter]) -> None:
    """One type per block, at most 64 blocks."""
    count = max(of_parameter) + 1
    if count > MAX_BLOCKS:
        raise InvalidArgument(f"jigsaw: {count} blocks; at most {MAX_BLOCKS} are possible: merge neighbours")
    first: Dict[int, Parameter] = {}
    for block, parameter in zip(of_parameter, trained):
        other = first.setdefault(block, parameter)
        if other.tensor.dtype != parameter.tensor.dtype:
            raise InvalidArgument(f"jigsaw: block {block} mixes {other.tensor.dtype} ({other.name}) and "
                                  f"{parameter.tensor.dtype} ({parameter.name}); give blocks of one type each")


Unit = Tuple[List[int], float]  # parameters that stay together, and their cost


def cut(units: Sequence[Unit], count: int) -> List[List[int]]:
    """Units in order into at most `count` runs of about equal cost: a unit goes where its middle falls.

    Fewer runs come out where one unit costs more than its share.
    """
    total = sum(cost for _, cost in units) or 1.0
    runs: Dict[int, List[int]] = {}
    before = 0.0
    for members, cost in units:
        run = min(count - 1, int((before + cost / 2) / total * count))
        runs.setdefault(run, []).extend(members)
        before += cost
    return [runs[run] for run in sorted(runs)]


def by_registration(trained: List[Parameter]) -> List[Unit]:
    """One unit per module that owns parameters, in the order of registration; its cost is its number of elements."""
    units: List[Unit] = []
    last: Optional[str] = None
    for i, parameter in enumerate(trained):
        if parameter.owner != last:
            units.append(([], 0.0))
        members, cost = units[-1]
        members.append(i)
        units[-1] = (members, cost + parameter.tensor.numel())
        last = parameter.owner
    return units


def by_arrival(trained: List[Parameter], arrivals: Sequence[Tuple[int, int]]) -> List[Unit]:
    """Units from backward passes: arrivals are (parameter, time since the gradient before it in ns), as gradients came.

    Autograd finishes a parameter once it has passed the parameter's earliest use, so the reverse of this order is the order from
    the input to the loss, for tied weights, modules used twice and branches, too. Parameters that got no gradient stay beside the
    one registered before them.
    """
    units: List[Unit] = []
    last: Optional[str] = None
    place: Dict[int, int] = {}
    for i, cost in arrivals:
        if trained[i].owner != last:
            units.append(([], 0.0))
        members, so_far = units[-1]
        members.append(i)
        place[i] = len(units) - 1
        units[-1] = (members, so_far + cost)
        last = trained[i].owner
    near = len(units) - 1  # what nobody knows anything of: at the input
    for i in range(len(trained)):
        if i in place:
            near = place[i]
        else:
            units[near][0].append(i)
    return units[::-1]


def of_parameter(runs: Sequence[Sequence[int]], count: int) -> List[int]:
    """The block of each of `count` parameters."""
    out = [0] * count
    for block, members in enumerate(runs):
        for i in members:
            out[i] = block
    return out
