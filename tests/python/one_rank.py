# SPDX-License-Identifier: Apache-2.0
"""One rank of a job that goes wrong: trains, says where it is, and ends as it is told. tests/python/t0300-failures.t starts it.

usage: one_rank.py HOW      runs until something ends it; HOW of this rank:
    on         goes on                          kill N     SIGKILL to itself in iteration N
    raise N    an exception in iteration N      sleep N    60 s in iteration N
    skip N     takes no step after iteration N, without saying so to the others by finite()
    stop N     ends the process after iteration N, without close()
or: one_rank.py share N FILE                    N iterations with blocks found, goes on until FILE is there; prints what it did
or: one_rank.py group RANK SIZE FILE            ranks known by a process group alone
"""
import os
import signal
import sys
import time

import torch

import jigsaw
from models import mlp, mlp_loss


def train(how, at):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = jigsaw.attach(model, blocks=list(model), policy="two-level", timeout=30)
    for t in range(100000):
        with session.iteration():
            loss = mlp_loss(model, t, session.rank)
            if t == at and how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if t == at and how == "raise":
                raise KeyError("of the user")
            if t == at and how == "sleep":
                print("sleeping", flush=True)
                time.sleep(60)
            loss.backward()
        if t == at and how == "skip":
            session._context.call("skip_step")
        optimizer.step()
        if t == at and how == "stop":
            return
        time.sleep(0.005)


def share(iterations, path):
    """Depth and generation of each iteration; a digest of the parameters at the end."""
    model = mlp(width=64, layers=6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with jigsaw.attach(model, timeout=60) as session:
        t, done, partial, generation = 0, False, 0, 0
        while not done:
            with session.iteration() as it:
                x, y = torch.randn(32, 64), torch.randint(3, (32,))
                torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            partial += not it.full
            generation = max(generation, it.generation)
            t += 1
            if t % 10 == 0:
                done = session.mean([float(t >= iterations and os.path.exists(path))]) == [1.0]
        print(f"iterations {t} partial {partial} generation {generation} blocks {session.num_blocks} "
              f"attached {session.stats()['attached']} turns {session.stats()['turns']} "
              f"sum {float(sum(p.double().abs().sum() for p in model.parameters()))}", flush=True)


def by_group(rank, size, path):
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
    model = mlp(seed=rank)
    with jigsaw.attach(model) as session:
        assert (session.rank, session.world_size) == (rank, size)
        with session.iteration():
            mlp_loss(model, 0, rank).backward()
        print("sum", float(sum(p.grad.double().abs().sum() for p in model.parameters())))
    assert "MASTER_ADDR" not in os.environ


if __name__ == "__main__":
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
    if sys.argv[1] == "share":
        share(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1] == "group":
        by_group(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        try:
            train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else -1)
        except jigsaw.Error as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            sys.exit(3)
