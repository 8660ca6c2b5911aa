#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands for jigsawd where only the SPANK plugin is tested: agent_stub.py SOCKET LOG [deaf]

Appends every message it hears to LOG and answers OK; with "deaf" it listens and never accepts."""
import os
import socket
import sys
import time

path, log = sys.argv[1:3]
os.makedirs(os.path.dirname(path), exist_ok=True)
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
listener.listen(1)
with open(log, "a", buffering=1) as heard:
    heard.write("listening\n")
    while len(sys.argv) > 3:
        time.sleep(3600)
    while True:
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(10)
            try:
                heard.write(peer.recv(4096).decode("ascii", "replace") + "\n")
                peer.send(b"OK")
            except OSError as error:
                heard.write(f"error {error}\n")
