# SPDX-License-Identifier: Apache-2.0
"""Whole training iterations (forward, backward, sync, step of SGD with momentum), ours and the other in turn; one thread a rank.

Under torchrun, against DistributedDataParallel:
    full_depth_time_vs_ddp      time of ours over theirs, median of the pairs, full depth; 1.03 at most is asked for
    full_depth_time_of_ddp      theirs, ms an iteration, median
    uniform_speedup_vs_ddp      time of theirs over ours under policy "uniform" (every second iteration full, the others one block):
                                a job alone gets faster, at a price in accuracy that docs/quality.md and bench/quality tell;
                                "depth" is the mean fraction of backward time
    gradients_equal             1: every gradient of every iteration compared had the same bits (two ranks add in one order)
In one process, against a plain loop:
    full_depth_overhead_ratio   time of ours over the plain loop's, median of the pairs; 1.01 at most is asked for at 20 ms

A pair is two runs of the same iterations, one after the other; every second pair begins with the other. The time of a run is that of
the slowest rank. "low" and "high" are the quartiles of the ratio; "cpu" is the same ratio of processor time, of this rank and all its threads, which other
work on the machine hardly disturbs.
"""
import argparse
import copy
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import jigsaw


def mlp():
    return nn.Sequential(*[nn.Sequential(nn.Linear(640, 640), nn.ReLU()) for _ in range(8)], nn.Linear(640, 10)), (64, 640)


def cnn():
    parts = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
             for a, b in ((3, 32), (32, 32), (32, 64), (64, 64), (64, 64))]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10)), (4, 3, 32, 32)


def transformer():
    layers = [nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(4)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 128, 10)), (8, 32, 128)


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": transformer}


class Way:
    """A model with its optimizer, and one iteration of it."""

    def __init__(self, model, session=None):
        self.model, self.session = model, session
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def iterate(self, x, y):
        if self.session is None:
            self.optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(self.model(x), y).backward()
        else:
            with self.session.iteration():
                nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()

    def run(self, batches, distributed):
        if distributed:
            dist.barrier()
        start, cpu = time.perf_counter(), time.process_time()
        for x, y in batches:
            self.iterate(x, y)
        took, cpu = torch.tensor([time.perf_counter() - start]), time.process_time() - cpu
        if distributed:
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
        return float(took) / len(batches), cpu


def line(metric, value, unit, **keys):
    print(json.dumps({"bench": "ddp", "metric": metric, "value": float(f"{value:.6g}"), "unit": unit, **keys}), flush=True)


def gradients_equal(ours, theirs, batches):
    for x, y in batches:
        ours.iterate(x, y)
        theirs.iterate(x, y)
        pairs = zip(ours.model.parameters(), theirs.model.parameters())
        if not all(torch.equal(p.grad, q.grad) for p, q in pairs):
            return False
    return True


def pairs(ours, theirs, options, batches, distributed):
    """Ratios of wall time and of processor time, and their times."""
    ratios, cpus, plain = [], [], []
    for pair in range(options.pairs):
        order = (ours, theirs) if pair % 2 else (theirs, ours)
        times = {way: way.run(batches, distributed) for way in order}
        ratios.append(times[ours][0] / times[theirs][0])
        cpus.append(times[ours][1] / times[theirs][1])
        plain.append(times[theirs][0])
    return ratios, cpus, plain


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3


def measure_uniform(name, options):
    torch.manual_seed(7)
    model, shape = MODELS[name]()
    batches = [(torch.randn(shape), torch.randint(10, shape[:1])) for _ in range(options.iterations)]
    theirs = Way(DistributedDataParallel(copy.deepcopy(model)))
    with jigsaw.attach(model, policy="uniform") as session:
        ours = Way(model, session)
        ours.run(batches, True)  # finds the blocks, and the directive comes
        theirs.run(batches, True)
        before = session.stats()
        ratios, _, _ = pairs(ours, theirs, options, batches, True)
        stats = session.stats()
        depth = (stats["mean_depth_fraction"] * stats["iterations"] - before["mean_depth_fraction"] * before["iterations"]) / (
            stats["iterations"] - before["iterations"])
        low, middle, high = quartiles([1 / ratio for ratio in ratios])
        if dist.get_rank() == 0:
            line("uniform_speedup_vs_ddp", middle, "1", model=name, ranks=dist.get_world_size(), pairs=options.pairs,
                 blocks=session.num_blocks, link="loopback", torch=torch.__version__, low=round(low, 4), high=round(high, 4),
                 depth=round(depth, 3), headline=True)
    dist.barrier()


def measure(name, options, distributed):
    torch.manual_seed(7)
    model, shape = MODELS[name]()
    batches = [(torch.randn(shape), torch.randint(10, shape[:1])) for _ in range(options.iterations)]
    twin = copy.deepcopy(model)
    theirs = Way(DistributedDataParallel(twin) if distributed else twin)
    rank, size = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
    with jigsaw.attach(model) as session:
        ours = Way(model, session)
        equal = gradients_equal(ours, theirs, batches[:6])  # the first iterations, which find the blocks, among them
        ratios, cpus, plain = pairs(ours, theirs, options, batches, distributed)
        blocks = session.num_blocks
    if rank == 0:
        low, middle, high = quartiles(ratios)
        keys = dict(model=name, ranks=size, pairs=options.pairs, blocks=blocks, torch=torch.__version__)
        line("full_depth_time_vs_ddp" if distributed else "full_depth_overhead_ratio", middle, "1", **keys,
             low=round(low, 4), high=round(high, 4), cpu=round(statistics.median(cpus), 4), headline=True)
        line("full_depth_time_of_ddp" if distributed else "full_depth_time_of_plain", 1000 * statistics.median(plain), "ms", **keys)
        line("gradients_equal", float(equal), "1", **keys)
    if distributed:
        dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=16, help="of one run; 8 is uniform's period")
    parser.add_argument("models", nargs="*", default=[])
    options = parser.parse_args()
    unknown = [name for name in options.models if name not in MODELS]
    if unknown:
        sys.exit(f"no model {unknown[0]}; there are: {' '.join(MODELS)}")
    torch.set_num_threads(1)
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    for name in options.models or MODELS:
        measure(name, options, distributed)
        if distributed:
            measure_uniform(name, options)


if __name__ == "__main__":
    main()
