# SPDX-License-Identifier: Apache-2.0
"""Small models with what makes trouble, their data, and the slow reference: every rank's full gradients by plain autograd."""
import copy

import torch
from torch import nn


class Tied(nn.Module):
    """Tied embedding, a module used twice, a skip connection over all of it, a parameter that is used now and then, a frozen one."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.first = nn.Linear(8, 8)
        self.twice = nn.Linear(8, 8)
        self.sometimes = nn.Parameter(torch.ones(8))
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)
        self.last = nn.Linear(8, 8)

    def forward(self, x, use):
        e = self.embed(x)
        h = torch.tanh(self.first(e)) * self.frozen
        h = torch.tanh(self.twice(h))
        if use:
            h = h * self.sometimes
        h = torch.tanh(self.twice(h)) + e
        return self.last(h) @ self.embed.weight.t()


class Turning(nn.Module):
    """Two modules whose order turns round at iteration 8, one that is left out in every fourth from then on."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.last = nn.Linear(12, 3)

    def forward(self, x, iteration):
        first, second = (self.one, self.two) if iteration < 8 else (self.two, self.one)
        x = torch.tanh(second(torch.tanh(first(x))))
        if iteration < 8 or iteration % 4:
            x = torch.tanh(self.three(x))
        return self.last(x)


def turning_loss(model, iteration, rank):
    x, y = mlp_batch(iteration, rank)
    return nn.functional.cross_entropy(model(x, iteration), y)


def mlp(seed=1, width=12, layers=4, norm=False, dtype=torch.float32):
    torch.manual_seed(seed)
    parts = []
    for _ in range(layers):
        part = [nn.Linear(width, width)] + ([nn.BatchNorm1d(width)] if norm else []) + [nn.Tanh()]
        parts.append(nn.Sequential(*part))
    return nn.Sequential(*parts, nn.Linear(width, 3)).to(dtype)


def mlp_batch(iteration, rank, width=12, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 * iteration + rank)
    return (torch.randn(6, width, generator=generator, dtype=torch.float64).to(dtype),
            torch.randint(3, (6,), generator=generator))


def mlp_loss(model, iteration, rank, dtype=torch.float32):
    x, y = mlp_batch(iteration, rank, dtype=dtype)
    return nn.functional.cross_entropy(model(x), y)


def tied_model(seed=2):
    torch.manual_seed(seed)
    return Tied()


def tied_loss(model, iteration, rank):
    generator = torch.Generator().manual_seed(1000 * iteration + rank)
    x = torch.randint(11, (5, 4), generator=generator)
    y = torch.randint(11, (20,), generator=generator)
    return nn.functional.cross_entropy(model(x, (iteration + rank) % 2 == 0).reshape(20, 11), y)


def all_gradients(model, loss, iteration, size):
    """[rank] {name: gradient or None} of full backpropagation, on copies."""
    out = []
    for rank in range(size):
        twin = copy.deepcopy(model)
        for p in twin.parameters():
            p.grad = None
        loss(twin, iteration, rank).backward()
        out.append({name: p.grad for name, p in twin.named_parameters()})
    return out


def reference(model, loss, iteration, depths, blocks):
    """{name: mean gradient}: block b is the mean over the ranks whose depth reaches it, added in rank order, a parameter that a
    rank did not use counts as zero there; None where no rank's depth reaches it. blocks None: all as one, while they are found."""
    blocks = blocks or [[name for name, p in model.named_parameters() if p.requires_grad]]
    gradients = all_gradients(model, loss, iteration, len(depths))
    shapes = dict(model.named_parameters())
    out = {}
    for b, names in enumerate(blocks):
        who = [rank for rank, depth in enumerate(depths) if b >= len(blocks) - depth]
        for name in names:
            if not who:
                out[name] = None
                continue
            total = None
            for rank in who:
                gradient = gradients[rank][name]
                gradient = torch.zeros_like(shapes[name]) if gradient is None else gradient
                total = gradient.clone() if total is None else total + gradient
            out[name] = total / len(who)
    return out


def assert_gradients(model, wanted):
    for name, p in model.named_parameters():
        if not p.requires_grad:
            assert p.grad is None, f"{name} is frozen and has a gradient"
            continue
        if wanted[name] is None:
            assert p.grad is None, f"{name}: a gradient that nobody computed"
        else:
            assert p.grad is not None, f"{name}: no gradient"
            assert torch.equal(p.grad, wanted[name]), f"{name}: off by {(p.grad - wanted[name]).abs().max()}"
