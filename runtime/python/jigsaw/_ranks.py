# SPDX-License-Identifier: Apache-2.0
"""Who this process is. libjigsaw reads torchrun's and Slurm's variables by itself; this covers what only Python knows, a process
group that somebody initialised without them (mp.spawn with an address or a file)."""
from __future__ import annotations

import contextlib
import os
import secrets
import socket
from typing import Dict, Iterator, Optional, Tuple

import torch

from ._library import InvalidArgument

Ranks = Tuple[Optional[int], Optional[int]]


def _process_group() -> Optional[Tuple[int, int]]:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _launcher() -> Optional[Tuple[int, int]]:
    for rank, size in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        if rank in os.environ and size in os.environ:
            try:
                return int(os.environ[rank]), int(os.environ[size])
            except ValueError:
                return None  # libjigsaw says what is wrong with it
    return None


def ranks(rank: Optional[int], world_size: Optional[int]) -> Ranks:
    """Rank and world size to give to libjigsaw; None where it shall read the environment."""
    if (rank is None) != (world_size is None):
        raise InvalidArgument("jigsaw: give both of rank and world_size, or neither")
    group, launcher = _process_group(), _launcher()
    if rank is not None or group is None or group == launcher:
        return rank, world_size
    if launcher is not None:
        raise InvalidArgument(f"jigsaw: torch.distributed has rank {group[0]} of {group[1]}, the launcher's variables say rank "
                              f"{launcher[0]} of {launcher[1]}; give rank= and world_size= to attach()")
    return group


def alone(given: Ranks) -> bool:
    """Whether this is certainly the only rank."""
    if given[1] is not None:
        return given[1] == 1
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return os.environ["WORLD_SIZE"] == "1"
    return os.environ.get("SLURM_NTASKS", "1") == "1"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def _meeting_place(rank: int) -> Dict[str, str]:
    """Agreed through the process group that is there."""
    distributed = torch.distributed
    hosts = [None] * distributed.get_world_size()
    distributed.all_gather_object(hosts, socket.gethostname())
    address = "127.0.0.1" if len(set(hosts)) == 1 else str(hosts[0])
    place = [{"MASTER_ADDR": address, "MASTER_PORT": str(_free_port()), "JIGSAW_RENDEZVOUS_TOKEN": secrets.token_hex(8)}
             if rank == 0 else None]
    distributed.broadcast_object_list(place, src=0)
    return dict(place[0] or {})


@contextlib.contextmanager
def meeting_place(given: Ranks) -> Iterator[None]:
    """While attaching: an address for ranks that a process group started and no launcher told one."""
    group = _process_group()
    if group is None or given != group or group[1] == 1 or "MASTER_ADDR" in os.environ:
        yield
        return
    place = _meeting_place(group[0])
    before = {name: os.environ.get(name) for name in place}
    os.environ.update(place)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
