# SPDX-License-Identifier: Apache-2.0
"""Several ranks under torchrun, beside a Gloo process group: against the slow reference, and against DistributedDataParallel."""
import copy
import hashlib
import os
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import jigsaw
from models import Turning, assert_gradients, mlp, mlp_loss, reference, tied_loss, tied_model, turning_loss
from tap import Tap, refused

SGD = dict(lr=0.1, momentum=0.9, weight_decay=0.01)


def gather(value):
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, value)
    return out


def digest(model):
    sha = hashlib.sha256()
    for p in model.parameters():
        sha.update(p.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def assert_same_everywhere(model):
    assert len(set(gather(digest(model)))) == 1, "parameters differ between ranks"


def against_reference(make, loss, iterations=12, make_optimizer=None, **options):
    """Gradients to the bit at every depth, parameters equal on all ranks; returns the depths seen, by iteration and rank."""
    model = make()
    optimizer = (make_optimizer or (lambda p: torch.optim.SGD(p, **SGD)))(model.parameters())
    seen = []
    with jigsaw.attach(model, **options) as session:
        for t in range(iterations):
            before, blocks = copy.deepcopy(model), session.blocks
            with session.iteration() as it:
                loss(model, t, session.rank).backward()
            depths = gather(it.depth)
            assert_gradients(model, reference(before, loss, t, depths, blocks))
            optimizer.step()
            seen.append(depths)
        assert_same_everywhere(model)
    dist.barrier()
    return seen


def full_depth(**options):
    assert all(len(set(d)) == 1 for d in against_reference(mlp, mlp_loss, 5, **options))


def partial_depth(policy, make=mlp, loss=mlp_loss, **options):
    """Depths follow measured times, except that of two-level's other ranks, which is 1. So a machine that stalls in a block may give
    all the depth there is, and the run is tried again."""
    options.setdefault("levels", 2 if policy == "two-level" else 16)
    for _ in range(4):
        seen = against_reference(make, loss, policy=policy, **options)
        last = [depth for depths in seen[5:] for depth in depths]
        if min(last) < seen[4][0]:
            return
    raise AssertionError(f"always at full depth: {seen}")


def uniform():
    """All ranks at one depth: in between blocks that nobody computes, whose momentum rests."""
    seen = against_reference(mlp, mlp_loss, iterations=22, policy="uniform")
    assert all(len(set(depths)) == 1 for depths in seen), seen
    assert {depths[0] for depths in seen[5:]} == {1, seen[4][0]}, seen


def turning():
    torch.manual_seed(5)
    model = Turning()
    for blocks in (["one", ["two"], "three", "last"], [["one", "two"], ["three", "last"]], [["one", "three"], ["two", "last"]]):
        seen = against_reference(lambda: copy.deepcopy(model), turning_loss, iterations=16, policy="two-level", blocks=blocks)
        assert any(min(depths) < len(blocks) for depths in seen)


def second_gradient():
    """Of a parameter that is not watched any more, in a block that is on its way."""
    for late in (0, 6):
        model = mlp()
        session = jigsaw.attach(model, blocks=list(model))
        for t in range(8):
            if t < late:
                with session.iteration():
                    mlp_loss(model, t, session.rank).backward()
                continue
            watched = [i for i in session._hooks._handles]
            assert (len(watched) == 5) == (late > 0), watched
            bias = [p for i, p in enumerate(model.parameters()) if late == 0 or i not in watched][0]

            def twice():
                with session.iteration():
                    mlp_loss(model, t, session.rank).backward()
                    dist.barrier()  # or one rank would hear that the other has left
                    bias.sum().backward()

            refused(jigsaw.InvalidState, "a second gradient", twice)
            break
        dist.barrier()


def accumulates():
    """After a while, when only the last of each block is watched: gradients add up, and go on their way in the last pass."""
    model, twin = mlp(), mlp()
    with jigsaw.attach(model, blocks=list(model)) as session:
        for t in range(9):
            with session.iteration() as it:
                if t >= 6:
                    for micro in (1, 2):
                        with it.accumulate():
                            mlp_loss(model, 10 * t + micro, session.rank).backward()
                mlp_loss(model, 10 * t, session.rank).backward()
            if t < 6:
                continue

            def loss(twin, iteration, rank):  # one sum has another order of addition than three passes
                for micro in (1, 2):
                    mlp_loss(twin, 10 * iteration + micro, rank).backward()
                return mlp_loss(twin, 10 * iteration, rank)

            assert_gradients(model, reference(twin, loss, t, gather(it.depth), session.blocks))
    dist.barrier()


def parameters_stay_equal():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with jigsaw.attach(model, blocks=list(model), policy="fixed", levels=16) as session:
        for t in range(8):
            with session.iteration():
                mlp_loss(model, t, session.rank).backward()
            optimizer.step()
        assert_same_everywhere(model)
    dist.barrier()


def against_ddp():
    """Full depth: to the bit at two ranks; else within 4 eps of the sum of magnitudes, since DDP adds in another order."""
    size = dist.get_world_size()
    ours, theirs = mlp(width=40, layers=6), DistributedDataParallel(mlp(width=40, layers=6))
    eps = torch.finfo(torch.float32).eps
    with jigsaw.attach(ours) as session:
        for t in range(6):
            with session.iteration():
                x, y = torch.randn(8, 40), torch.randint(3, (8,))
                nn.functional.cross_entropy(ours(x), y).backward()
            theirs.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(theirs(x), y).backward()
            mine = copy.deepcopy(theirs.module)
            mine.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(mine(x), y).backward()
            for (name, p), q, local in zip(ours.named_parameters(), theirs.module.parameters(), mine.parameters()):
                if size == 2:
                    assert torch.equal(p.grad, q.grad), f"{name}: off by {(p.grad - q.grad).abs().max()}"
                else:
                    magnitude = local.grad.abs()
                    dist.all_reduce(magnitude)
                    assert ((p.grad - q.grad).abs() <= 4 * eps * magnitude / size).all(), name
            with torch.no_grad():  # the same step for both, so that they stay comparable
                for p, q in zip(ours.parameters(), theirs.module.parameters()):
                    p -= 0.1 * q.grad
                    q -= 0.1 * q.grad
    dist.barrier()


def starts_from_rank_0():
    model = mlp(seed=dist.get_rank(), norm=True)
    model.register_buffer("odd", torch.tensor([True, dist.get_rank() == 0, False]))
    jigsaw.attach(model).close()
    assert len(set(gather(digest(model)))) == 1
    assert bool(model.odd[1]), "rank 0's buffers"
    dist.barrier()


def buffers():
    rank, size = dist.get_rank(), dist.get_world_size()
    model = mlp(norm=True)
    with jigsaw.attach(model, blocks=list(model)) as session:
        with session.iteration():
            mlp_loss(model, 0, rank).backward()
        own = model[0][1].running_mean.clone()
        all_own = gather(own)
        assert not torch.equal(all_own[0], all_own[1]), "statistics are per rank"
        session.average_buffers()
        wanted = (sum(v.double() for v in all_own) / size).float()
        assert torch.equal(model[0][1].running_mean, wanted)
        model[0][1].running_mean.fill_(rank)
        session.broadcast_buffers()
        assert torch.equal(model[0][1].running_mean, torch.zeros_like(own))
        assert session.mean([rank, 1.0]) == [(size - 1) / 2, 1.0]
    dist.barrier()


def clipping():
    """The norm over what anybody computed, whatever this rank computed itself."""
    model = mlp()
    with jigsaw.attach(model, blocks=list(model), policy="two-level") as session:
        for t in range(8):
            before = copy.deepcopy(model)
            with session.iteration() as it:
                mlp_loss(model, t, session.rank).backward()
            wanted = reference(before, mlp_loss, t, gather(it.depth), session.blocks)
            norm = torch.sqrt(sum(g.double().pow(2).sum() for g in wanted.values() if g is not None))
            got = session.clip_grad_norm(0.05)
            assert abs(got - float(norm)) < 1e-9 * got, (got, float(norm))
            assert len(set(gather(got))) == 1
            with torch.no_grad():
                for p in model.parameters():
                    p -= p.grad
        assert_same_everywhere(model)
    dist.barrier()


def not_finite():
    """One rank's gradient overflows: all skip, and training goes on."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    with jigsaw.attach(model, blocks=list(model), optimizer=optimizer) as session:
        for t in range(4):
            with session.iteration():
                loss = mlp_loss(model, t, session.rank)
                (loss * float("inf") if t == 1 and session.rank == 1 else loss).backward()
            assert session.step() == (t != 1)
        assert_same_everywhere(model)
    dist.barrier()


def repeats(policy):
    """A log of directives, with the blocks that were found: the same run again, whatever the policy given."""
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    log = os.path.join(folder[0], "directives.jsonl")
    ends = []
    for options in ({"policy": policy, "directive_log": log}, {"policy": "full", "replay_log": log}):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), **SGD)
        with jigsaw.attach(model, **options) as session:
            depths = []  # while blocks are found there is one
            for t in range(10):
                with session.iteration() as it:
                    mlp_loss(model, t, session.rank).backward()
                optimizer.step()
                depths.append(it.depth)
        ends.append((digest(model), depths[3:], session._flat.of_parameter))
        dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])
    assert ends[0] == ends[1], (ends[0][1], ends[1][1])
    assert len(set(ends[0][1])) > 1 or dist.get_world_size() > 2, ends[0][1]


def again_at_once():
    """Close and attach without waiting for each other."""
    model = mlp()
    for _ in range(3):
        session = jigsaw.attach(model, blocks=2)
        with session.iteration():
            mlp_loss(model, 0, session.rank).backward()
        session.close()
    dist.barrier()


def refuses():
    refused(jigsaw.InvalidArgument, "attach the bare module", jigsaw.attach, DistributedDataParallel(mlp()))
    model = mlp() if dist.get_rank() == 0 else mlp(layers=3)
    refused(jigsaw.InvalidArgument, "rank 1 has other parameters", jigsaw.attach, model)
    dist.barrier()
    refused(jigsaw.InvalidArgument, "rank 1 has other parameters or blocks", jigsaw.attach, mlp(),
            blocks=2 + (dist.get_rank() == 1))
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    size = dist.get_world_size()
    tap = Tap(gather, dist.get_rank())
    names = f"{size} ranks"
    tap.case(f"{names}: all start from rank 0's parameters and buffers", starts_from_rank_0)
    tap.case(f"{names}, full depth, blocks by hand: the sum in rank order to the bit", lambda: full_depth(blocks=["0", "1", "2", ["3", "4"]]))
    tap.case(f"{names}, full depth, blocks found: the same", full_depth)
    tap.case(f"{names}, full depth: gradients of DistributedDataParallel", against_ddp)
    for policy in ("two-level", "rotate", "shuffle", "fixed"):
        tap.case(f"{names}, {policy}, blocks found: the slow reference to the bit", partial_depth, policy)
    tap.case(f"{names}, uniform, blocks found: the same, and None where nobody computes", uniform)
    tap.case(f"{names}, rotate, tied weights, a skip, a module used twice: the same",
             lambda: partial_depth("rotate", tied_model, tied_loss, iterations=12))
    tap.case(f"{names}, two-level, AdamW: the same",
             lambda: partial_depth("two-level", make_optimizer=lambda p: torch.optim.AdamW(p, lr=0.01)))
    tap.case(f"{names}, two-level, an order of use that turns round, modules left out: the same", turning)
    tap.case(f"{names}: accumulation after a while", accumulates)
    tap.case(f"{names}: a second gradient is found", second_gradient)
    tap.case(f"{names}, fixed, AdamW: parameters stay equal", parameters_stay_equal)
    tap.case(f"{names}: averages and broadcasts of buffers", buffers)
    tap.case(f"{names}: the global norm with different contributors", clipping)
    tap.case(f"{names}: a gradient that is not finite on one rank", not_finite)
    tap.case(f"{names}: a run repeats from its directive log", repeats, "two-level")
    tap.case(f"{names}: close and attach again without a barrier", again_at_once)
    tap.case(f"{names}: DDP and ranks that differ are refused", refuses)
    status = tap.done()
    dist.barrier()
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
