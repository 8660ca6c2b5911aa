# SPDX-License-Identifier: Apache-2.0
"""One process, without Slurm, jigsawd or a process group."""
import copy
import gc
import os
import shutil
import sys
import tempfile

import torch
from torch import nn

import jigsaw
from models import assert_gradients, mlp, mlp_loss, reference, tied_loss, tied_model
from tap import Tap, refused

SGD = dict(lr=0.1, momentum=0.9, weight_decay=0.01)


def plain_run(model, loss, iterations, optimizer):
    for t in range(iterations):
        optimizer.zero_grad(set_to_none=True)
        loss(model, t, 0).backward()
        optimizer.step()


def same_parameters(a, b):
    for (name, x), (_, y) in zip(a.state_dict().items(), b.state_dict().items()):
        assert torch.equal(x, y), f"{name}: off by {(x.double() - y.double()).abs().max()}"


def full_depth_is_plain_training(make_optimizer, model, loss, blocks):
    twin = copy.deepcopy(model)
    plain_run(twin, loss, 6, make_optimizer(twin.parameters()))
    optimizer = make_optimizer(model.parameters())
    with jigsaw.attach(model, blocks=blocks, optimizer=optimizer) as session:
        for t in range(6):
            with session.iteration() as it:
                assert it.number == t and it.full
                loss(model, t, 0).backward()
            optimizer.step()
            optimizer.zero_grad()  # of torch 1.13 fills with zeros
        assert session.stats()["iterations"] == 6 and session.next_iteration == 6
    same_parameters(model, twin)


def blocks_found(model, loss, count):
    with jigsaw.attach(model, blocks=count) as session:
        for t in range(3):
            assert session.blocks is None and session.num_blocks == count
            with session.iteration():
                loss(model, t, 0).backward()
        return session.blocks


def found_in_order_of_use():
    class Backwards(nn.Module):  # registered from the loss to the input
        def __init__(self):
            super().__init__()
            for name in ("d", "c", "b", "a"):
                setattr(self, name, nn.Linear(12, 12))

        def forward(self, x):
            return self.d(self.c(self.b(self.a(x))))

    blocks = blocks_found(Backwards(), mlp_loss_of_logits, 4)
    # Members stand in the order of registration; a module stays in one piece.
    order = [name.split(".")[0] for block in blocks for name in reversed(block)]
    assert order == list("aabbccdd"), blocks
    assert 2 <= len(blocks) <= 4, blocks


def mlp_loss_of_logits(model, iteration, rank):
    return mlp_loss(nn.Sequential(model, nn.Identity()), iteration, rank)


def tied_weights_belong_to_their_first_use():
    blocks = blocks_found(tied_model(), tied_loss, 3)
    assert "embed.weight" in blocks[0], blocks
    assert sum(len(b) for b in blocks) == 8, blocks  # all but the frozen one


def cut_is_even():
    from jigsaw._blocks import cut
    units = [([i], 1.0) for i in range(12)]
    assert [len(run) for run in cut(units, 4)] == [3, 3, 3, 3]
    assert cut([([0], 1.0), ([1], 100.0), ([2], 1.0)], 3) == [[0], [1], [2]]
    assert cut([([0], 100.0), ([1], 1.0)], 8) == [[0], [1]]
    assert cut([([0], 0.0), ([1], 0.0)], 4)[-1][-1] == 1


def until_partial(run):
    """policy "fixed" with 16 levels: the one rank is always at the lowest, which asks for 1/16 of the measured backward time. Where the
    machine stalls in the first block that is all the depth there is, and the run is tried again."""
    for _ in range(5):
        if run():
            return
    raise AssertionError("always at full depth")


def partial_depth_leaves_the_rest_alone():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    blocks = list(model)
    with jigsaw.attach(model, blocks=blocks, policy="fixed", levels=16) as session:
        shallow = 0
        for t in range(12):
            before = copy.deepcopy(model)
            with session.iteration() as it:
                frozen = [p for b in blocks[:it.num_blocks - it.depth] for p in b.parameters()]
                assert not any(p.requires_grad for p in frozen)
                mlp_loss(model, t, 0).backward()
            assert_gradients(model, reference(before, mlp_loss, t, [it.depth], session.blocks))
            assert all(p.requires_grad for p in model.parameters())
            optimizer.step()
            shallow += not it.full
            for block, old in zip(blocks[:it.num_blocks - it.depth], before):  # momentum and decay do not move it
                same_parameters(block, old)
    return shallow >= 6


def accumulation():
    model, twin = mlp(), mlp()
    with jigsaw.attach(model, blocks=2) as session:
        for t in range(4):
            with session.iteration() as it:
                for micro in range(3):
                    loss = mlp_loss(model, t, micro)
                    if micro < 2:
                        with it.accumulate():
                            loss.backward()
                    else:
                        loss.backward()
            twin.zero_grad(set_to_none=True)
            for micro in range(3):
                mlp_loss(twin, t, micro).backward()
            for (name, p), q in zip(model.named_parameters(), twin.parameters()):
                assert torch.equal(p.grad, q.grad), name


def everything_accumulated():
    """No gradient comes outside accumulate(): no overlap, nothing learned of the order, the right gradients all the same."""
    model, twin = mlp(), mlp()
    with jigsaw.attach(model) as session:
        for t in range(4):
            with session.iteration() as it, it.accumulate():
                mlp_loss(model, t, 0).backward()
        assert session.num_blocks > 1
    mlp_loss(twin, 3, 0).backward()
    for (name, p), q in zip(model.named_parameters(), twin.parameters()):
        assert torch.equal(p.grad, q.grad), name


def accumulated_parts_count():
    """A parameter that only an earlier micro-batch used keeps its gradient."""
    model, twin = tied_model(), tied_model()
    with jigsaw.attach(model, blocks=[["embed"], ["first", "twice", "sometimes", "last"]]) as session:
        with session.iteration() as it:
            with it.accumulate():
                tied_loss(model, 0, 0).backward()
            tied_loss(model, 0, 1).backward()
    tied_loss(twin, 0, 0).backward()
    tied_loss(twin, 0, 1).backward()
    assert torch.equal(model.sometimes.grad, twin.sometimes.grad) and twin.sometimes.grad.abs().sum() > 0


def clipping_and_steps():
    model, twin = mlp(), mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with jigsaw.attach(model, blocks=3, optimizer=optimizer) as session:
        with session.iteration():
            mlp_loss(model, 0, 0).backward()
        mlp_loss(twin, 0, 0).backward()
        wanted = float(torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.01))
        got = session.clip_grad_norm(0.01)
        assert abs(got - wanted) < 1e-6 * wanted, (got, wanted)
        for p, q in zip(model.parameters(), twin.parameters()):
            assert torch.allclose(p.grad, q.grad, rtol=1e-4, atol=0)
        before = copy.deepcopy(model)
        assert session.step(max_norm=1.0)
        assert not torch.equal(before[0][0].weight, model[0][0].weight)
        with session.iteration():
            (mlp_loss(model, 1, 0) * float("inf")).backward()
        before = copy.deepcopy(model)
        assert not session.finite() and not session.step()
        same_parameters(model, before)
        with session.iteration():
            mlp_loss(model, 2, 0).backward()
        assert session.step()


def evaluation_between():
    model, twin = mlp(norm=True), mlp(norm=True)
    optimizer, other = torch.optim.SGD(model.parameters(), **SGD), torch.optim.SGD(twin.parameters(), **SGD)
    plain_run(twin, mlp_loss, 4, other)
    with jigsaw.attach(model, blocks=list(model)) as session:
        for t in range(4):
            with session.iteration():
                mlp_loss(model, t, 0).backward()
            optimizer.step()
            with session.turn(), torch.no_grad():
                model.eval()
                mlp_loss(model, 99, 0)
                model.train()
            session.average_buffers()
            session.report(loss=1.0, progress=t / 4)
    same_parameters(model, twin)


def types():
    for dtype in (torch.float64, torch.bfloat16):
        model = mlp(dtype=dtype)
        with jigsaw.attach(model) as session:
            for t in range(3):
                before, blocks = copy.deepcopy(model), session.blocks
                with session.iteration() as it:
                    mlp_loss(model, t, 0, dtype).backward()
                assert_gradients(model, reference(before, lambda m, i, r: mlp_loss(m, i, r, dtype), t, [it.depth], blocks))


def after_an_exception():
    model = mlp()
    with jigsaw.attach(model, blocks=list(model), policy="fixed", levels=16) as session:
        for t in range(8):
            if t in (0, 5):
                try:
                    with session.iteration():
                        mlp_loss(model, t, 0)
                        raise KeyError("the user's")
                except KeyError:
                    pass
                assert all(p.grad is None and p.requires_grad for p in model.parameters())
            before = copy.deepcopy(model)
            with session.iteration() as it:
                mlp_loss(model, t, 0).backward()
            assert_gradients(model, reference(before, mlp_loss, t, [it.depth], session.blocks))


def follows_the_rate():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with jigsaw.attach(model, optimizer=optimizer) as session:
        for rate, wanted in ((0.05, 1.0), (0.1, 1.0), (0.025, 0.25)):
            optimizer.param_groups[0]["lr"] = rate
            with session.iteration():
                mlp_loss(model, 0, 0).backward()
            assert session._report.lr_over_peak == wanted


def closed_and_collected():
    model = mlp()
    session = jigsaw.attach(model, blocks=2)
    with session.iteration():
        mlp_loss(model, 0, 0).backward()
    session.close()
    session.close()
    refused(jigsaw.InvalidState, "was closed", session.iteration().__enter__)
    model.zero_grad(set_to_none=True)
    mlp_loss(model, 0, 0).backward()  # no hook is left
    again = jigsaw.attach(model, blocks=2)
    with again.iteration():
        mlp_loss(model, 0, 0).backward()
    del again
    gc.collect()
    mlp_loss(model, 0, 0).backward()


def replays():
    folder = tempfile.mkdtemp()
    log = os.path.join(folder, "directives.jsonl")
    digests = []
    for options in ({"policy": "fixed", "levels": 16, "directive_log": log}, {"replay_log": log}):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), **SGD)
        with jigsaw.attach(model, **options) as session:
            depths = []  # while blocks are found there is one
            for t in range(10):
                with session.iteration() as it:
                    mlp_loss(model, t, 0).backward()
                optimizer.step()
                depths.append(it.depth)
        digests.append((depths[3:], [p.tolist() for p in model.parameters()], session.blocks))
    shutil.rmtree(folder)
    assert digests[0] == digests[1], (digests[0][0], digests[1][0])
    return min(digests[0][0]) < max(digests[0][0])


def resumes():
    model = mlp()
    with jigsaw.attach(model, first_iteration=7) as session:
        with session.iteration() as it:
            mlp_loss(model, 0, 0).backward()
        assert it.number == 7 and session.next_iteration == 8


class FullyShardedDataParallel(nn.Module):  # Debian's torch 1.13 cannot import the real one under Python 3.11
    def __init__(self, module):
        super().__init__()
        self.module = module


WRONG = [
    ("wrapped in FullyShardedDataParallel, which shards", lambda m: jigsaw.attach(FullyShardedDataParallel(m))),
    ("give a torch.nn.Module", lambda m: jigsaw.attach(m.parameters())),
    ("wrapped in DataParallel", lambda m: jigsaw.attach(nn.DataParallel(m))),
    ("SyncBatchNorm", lambda m: jigsaw.attach(nn.Sequential(m, nn.SyncBatchNorm(3)))),
    ("sparse=False", lambda m: jigsaw.attach(nn.Sequential(nn.Embedding(3, 4, sparse=True), m))),
    ("torch.autocast", lambda m: jigsaw.attach(m.half())),
    ("run the model once before attach", lambda m: jigsaw.attach(nn.Sequential(nn.LazyLinear(3)))),
    ("unfreeze what is to be trained", lambda m: jigsaw.attach(m.requires_grad_(False))),
    ('no module or parameter "nine"', lambda m: jigsaw.attach(m, blocks=["0", "nine"])),
    ("in no block: 2.0.weight", lambda m: jigsaw.attach(m, blocks=["0", "1"])),
    ("merge it with a neighbour", lambda m: jigsaw.attach(m, blocks=[m, "0"])),
    ("none of the model's", lambda m: jigsaw.attach(m, blocks=[nn.Linear(2, 2), m])),
    ("possible are 1 to 64", lambda m: jigsaw.attach(m, blocks=65)),
    ("blocks is a str", lambda m: jigsaw.attach(m, blocks="0")),
    ("of one type each", lambda m: jigsaw.attach(nn.Sequential(m, nn.Linear(3, 3).double()), blocks=1 * [["0", "1"]])),
    ("allowed are full, two-level", lambda m: jigsaw.attach(m, policy="deep")),
    ("without param_groups", lambda m: jigsaw.attach(m, optimizer="sgd")),
    ("levels is -1", lambda m: jigsaw.attach(m, levels=-1)),
    ("timeout is 0", lambda m: jigsaw.attach(m, timeout=0)),
    ("both of rank and world_size", lambda m: jigsaw.attach(m, rank=0)),
    ("which stand in /nonexistent.blocks", lambda m: jigsaw.attach(m, replay_log="/nonexistent")),
    ("replay_log /nonexistent", lambda m: jigsaw.attach(m, blocks=list(m), replay_log="/nonexistent")),
]


def wrong_at_attach():
    for says, call in WRONG:
        error = refused(jigsaw.InvalidArgument, says, call, mlp())
        assert isinstance(error, (ValueError, jigsaw.Error)) and error.code == 1


def wrong_in_iterations():
    def inside(body, blocks=2):
        model = mlp()
        session = jigsaw.attach(model, blocks=blocks if blocks else list(model))
        with session.iteration() as it:
            body(session, model, it)

    state = jigsaw.InvalidState
    for blocks in (2, None):  # learned and by hand
        refused(state, "call loss.backward() inside", inside, lambda s, m, it: None, blocks)
        refused(state, "got a second gradient in one", inside, lambda s, m, it: [mlp_loss(m, 0, 0).backward() for _ in range(2)], blocks)
        refused(state, "iteration 0 is open", inside, lambda s, m, it: s.iteration().__enter__(), blocks)
        refused(state, "clip_grad_norm() belongs between", inside, lambda s, m, it: s.clip_grad_norm(1), blocks)
        refused(state, "has its own turn", inside, lambda s, m, it: s.turn().__enter__(), blocks)
    model = mlp()
    session = jigsaw.attach(model)
    refused(state, "finite() belongs between", session.finite)
    refused(jigsaw.InvalidArgument, "which optimizer", session.step)
    refused(jigsaw.InvalidArgument, "positive norm", session.clip_grad_norm, 0)
    with session.iteration() as it:
        mlp_loss(model, 0, 0).backward()
    refused(state, "accumulate() belongs inside", it.accumulate().__enter__)
    model[0][0].weight.requires_grad_(False)
    refused(state, "0.0.weight was frozen after attach", session.iteration().__enter__)


def main():
    tap = Tap()
    tap.case("the library tells its version", lambda: jigsaw.library_version().split(".")[1])
    for name, make in (("SGD", lambda p: torch.optim.SGD(p, **SGD)), ("Adam", lambda p: torch.optim.AdamW(p, lr=0.01))):
        for what, blocks in (("found", 4), ("by hand", ["0", ["1", "2"], "3", "4"])):
            tap.case(f"full depth is plain training: MLP, {name}, blocks {what}", full_depth_is_plain_training, make, mlp(), mlp_loss, blocks)
    tap.case("full depth is plain training: tied weights, a parameter used now and then", full_depth_is_plain_training,
             lambda p: torch.optim.SGD(p, **SGD), tied_model(), tied_loss, None)
    tap.case("full depth is plain training: batch norm", full_depth_is_plain_training, lambda p: torch.optim.SGD(p, **SGD),
             mlp(norm=True), mlp_loss, None)
    tap.case("blocks found follow the order of use", found_in_order_of_use)
    tap.case("tied weights belong to their first use, frozen ones to none", tied_weights_belong_to_their_first_use)
    tap.case("the cut is even, in order, without an empty block", cut_is_even)
    tap.case("partial depth: gradients of the suffix to the bit, None before it", until_partial, partial_depth_leaves_the_rest_alone)
    tap.case("gradient accumulation adds up as plain training does", accumulation)
    tap.case("accumulate() around everything", everything_accumulated)
    tap.case("what only an earlier micro-batch used counts", accumulated_parts_count)
    tap.case("clipping, non-finite gradients, step()", clipping_and_steps)
    tap.case("evaluation, averages and reports between iterations", evaluation_between)
    tap.case("float64 and bfloat16", types)
    tap.case("an exception in an iteration costs that iteration", after_an_exception)
    tap.case("the learning rate over its peak is read from the optimizer", follows_the_rate)
    tap.case("close, attach again, be forgotten", closed_and_collected)
    tap.case("a run repeats from its directive log", until_partial, replays)
    tap.case("a run resumes", resumes)
    tap.case("what cannot work is refused at attach with the remedy", wrong_at_attach)
    tap.case("calls at the wrong moment say what to do", wrong_in_iterations)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
