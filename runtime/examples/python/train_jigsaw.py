# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits by a small convolutional network: the loop of train_stock.py, data-parallel by JigSaw with five more lines."""
import os
import sys

import jigsaw
import torch
from torch import nn

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
table = torch.tensor([[float(v) for v in line.split(",")] for line in
                      open(os.path.join(os.path.dirname(__file__), "../data/optdigits.csv"))])
images, labels = table[:, :64].reshape(-1, 1, 8, 8) / 16, table[:, 64].long()
train, test = range(0, 1500), range(1500, len(labels))

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
session = jigsaw.attach(model, optimizer=optimizer, policy="two-level")

for epoch in range(epochs):
    order = torch.randperm(len(train))
    for batch in order.split(50):
        batch = batch[session.rank::session.world_size]
        with session.iteration():
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    schedule.step()

session.average_buffers()
model.eval()
with torch.no_grad():
    right = (model(images[test.start:]).argmax(1) == labels[test.start:]).float().mean()
print(f"accuracy {100 * right:.1f} %")
