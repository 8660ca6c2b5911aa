# SPDX-License-Identifier: Apache-2.0
"""A rank's session: attach, iterations, what belongs between them.

One iteration, on every rank:

    with session.iteration() as it:     the turn is held, blocks beyond it.depth are frozen, gradients are None
        loss = ...; loss.backward()     a block's gradients go on their way as they are complete
    optimizer.step()                    .grad holds the means; a block that nobody computed has None

Communication is libjigsaw's own Gloo (or NCCL), beside any torch.distributed process group and without one: partial sync starts
per block while backward runs, agrees on depths in an exchange of its own and names a rank that left. None of that exists in a
process group, and sharing one would interleave its collectives with the user's.
"""
from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import math
import os
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from . import _blocks, _library, _ranks
from ._blocks import BlockLike, Parameter
from ._gradients import FlatBlocks, Hooks, Watch, all_finite, floating, reset_gradients, square_sum
from ._library import Context, InvalidArgument, InvalidState

DEFAULT_BLOCKS = 4
#: Iterations in which order and times of gradients are learned, all parameters being one block meanwhile; the first one is cold.
LEARNING_ITERATIONS = 3
_BUCKET_BYTES = 16 << 20
_ALIGN = 16


class Iteration:
    """One iteration; `with session.iteration() as it:` around forward and backward.

    Attributes: number (iterations since attach, from first_iteration), depth and num_blocks (blocks from the loss that this rank
    computes, of how many), generation (of the directive in force, 0: none), and after the block: sync_ms (from the end of compute
    to the last gradient), turn_wait_ms (for the next turn), defined_blocks (bit b: block b has a gradient).
    """

    __slots__ = ("_session", "number", "depth", "num_blocks", "generation", "sync_ms", "turn_wait_ms", "defined_blocks")

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.number = self.generation = self.defined_blocks = 0
        self.depth = self.num_blocks = 0
        self.sync_ms = self.turn_wait_ms = 0.0

    @property
    def full(self) -> bool:
        """Whether this rank computes all blocks."""
        return self.depth == self.num_blocks

    def __enter__(self) -> "Iteration":
        self._session._begin(self)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self._session._end(self)
        else:
            self._session._give_up()

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        """For gradient accumulation: around every micro-batch but the last. They share one depth; each has a turn of its own.

            with session.iteration() as it:
                for x, y in first_batches:
                    with it.accumulate():
                        (loss_fn(model(x), y) / n).backward()
                (loss_fn(model(last_x), last_y) / n).backward()
        """
        session = self._session
        session._expect_open(self, "accumulate()")
        session._hooks.armed = False
        session._watch.all()
        yield
        session._next_micro_batch()


class Session:
    """Made by jigsaw.attach(). Use it on the thread that attached. close() leaves the job; the end of the process does, too."""

    def __init__(self, model: torch.nn.Module, blocks: Union[None, int, Sequence[BlockLike]], optimizer: Any,
                 options: Dict[str, Any], broadcast: bool, peak_lr: Optional[float]) -> None:
        _blocks.refuse_wrapped(model)
        self.model = model
        self._trained: List[Parameter] = _blocks.trained_parameters(model)
        self._device = self._trained[0].tensor.device
        self._timeout_s: float = options["timeout"]
        self._optimizer, self._peak_lr = optimizer, peak_lr
        self._directive_log: Optional[str] = options["directive_log"]
        if optimizer is not None and not getattr(optimizer, "param_groups", None):
            raise InvalidArgument(f"jigsaw: optimizer is a {type(optimizer).__name__} without param_groups; give the "
                                  "torch.optim.Optimizer, or none")
        blocks = self._blocks_of_replay(blocks, options["replay_log"])
        self._count = self._wanted_count(blocks)
        self._given_ranks = _ranks.ranks(options["rank"], options["world_size"])
        self._alone = _ranks.alone(self._given_ranks)
        self._learning = 0  # iterations left in which the order of gradients is learned
        if not isinstance(blocks, int) and blocks is not None:
            self._flat = self._make_flat(_blocks.blocks_by_hand(blocks, model, self._trained))
        elif self._cuda or self._count == 1:
            self._flat = self._make_flat(self._cut(_blocks.by_registration(self._trained)))
        else:
            self._flat = self._make_flat([0] * len(self._trained))
            self._learning = LEARNING_ITERATIONS
        self._context = self._attach(options)
        # Not at exit of a forked child: the session is its parent's.
        self._finalizer = weakref.finalize(self, _detach_in, os.getpid(), self._context)
        self._hooks = Hooks(self._trained)
        self._watch = Watch(self._hooks, self._flat)
        self._forward_hook = model.register_forward_hook(_forward_hook(weakref.ref(self)))
        self._open: Optional[Iteration] = None
        self._begun = 0
        self._now = _library.sized(_library.Iteration())
        self._result = _library.sized(_library.SyncResult())
        self._report = _library.sized(_library.Report(loss=math.nan, progress=math.nan, lr_over_peak=math.nan))
        self._defined = 0
        self._synchronised = False
        self._forward_end_ns = 0
        self._stream: Optional[int] = None
        self._arrivals: List[Tuple[int, int]] = []
        self._costs: Dict[int, int] = {}
        self._block_ready = self._context.library.block_ready
        try:
            self._check_same_model()
            self._note_blocks()
            if broadcast:
                self._broadcast_tensors(list(model.parameters()) + list(model.buffers()))
        except BaseException:
            self.close()
            raise

    # Attaching

    @property
    def _cuda(self) -> bool:
        return self._device.type == "cuda"

    def _blocks_of_replay(self, blocks: Any, replay_log: Optional[str]) -> Any:
        if replay_log is None or (blocks is not None and not isinstance(blocks, int)):
            return blocks
        path = replay_log + ".blocks"
        try:
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError) as why:
            raise InvalidArgument(f"jigsaw: replay_log needs the blocks of the recorded run, which stand in {path}: {why}; give "
                                  "blocks= (session.blocks of that run)") from None

    def _wanted_count(self, blocks: Any) -> int:
        if blocks is None:
            return min(DEFAULT_BLOCKS, len(self._trained))
        if isinstance(blocks, bool) or not isinstance(blocks, (int, list, tuple)):
            raise InvalidArgument(f"jigsaw: blocks is a {type(blocks).__name__}; give a list of modules or names from the input "
                                  "to the loss, a number of blocks to be found, or nothing")
        count = blocks if isinstance(blocks, int) else len(blocks)
        if not 1 <= count <= _library.MAX_BLOCKS:
            raise InvalidArgument(f"jigsaw: {count} blocks; possible are 1 to {_library.MAX_BLOCKS}")
        return count

    def _make_flat(self, of_parameter: List[int]) -> FlatBlocks:
        _blocks.check_blocks(of_parameter, self._trained)
        return FlatBlocks(self._trained, of_parameter, self._alone)

    def _cut(self, units: Sequence[_blocks.Unit]) -> List[int]:
        return _blocks.of_parameter(_blocks.cut(units, self._count), len(self._trained))

    def _attach(self, options: Dict[str, Any]) -> Context:
        config = _library.sized(_library.Config())
        c_blocks = self._flat.c_blocks()
        config.num_blocks, config.blocks = len(c_blocks), c_blocks
        given = (0, 1) if self._alone else self._given_ranks
        for name, value in (("rank", given[0]), ("world_size", given[1]), ("local_rank", options["local_rank"])):
            setattr(config, name, -1 if value is None else value)
        for name in ("backend", "policy", "sync_strategy", "directive_log", "replay_log"):
            setattr(config, name, None if options[name] is None else os.fsencode(options[name]))
        if options["backend"] is None and self._cuda:
            config.backend = b"nccl"
        config.cuda_device = -1
        if self._cuda and self._device.index is not None:
            config.cuda_device = self._device.index
        for name in ("levels", "full_workers", "warmup_iterations", "seed", "first_iteration", "min_depth_fraction"):
            if options[name] < 0:
                raise InvalidArgument(f"jigsaw: {name} is {options[name]}; it cannot be negative")
            setattr(config, name, options[name])
        if not 0.001 <= self._timeout_s <= 4e6:
            raise InvalidArgument(f"jigsaw: timeout is {self._timeout_s} s; possible are 0.001 to 4,000,000")
        config.timeout_ms = int(self._timeout_s * 1000)
        self._keep_log = _log_function(options["log"])
        if self._keep_log is not None:
            config.log = self._keep_log
        _library.interrupting_wake(config)
        self._first_iteration: int = options["first_iteration"]
        with _ranks.meeting_place(self._given_ranks):
            return Context(config)

    def _check_same_model(self) -> None:
        """All ranks have the same parameters in the same blocks; else all of them say which rank has not."""
        if self.world_size == 1:
            return
        text = repr([(p.name, tuple(p.tensor.shape), str(p.tensor.dtype)) for p in self._trained])
        text += repr((self._flat.of_parameter, self._count))
        mine = hashlib.sha256(text.encode()).digest()
        first = ctypes.create_string_buffer(mine, len(mine))
        self._context.call("broadcast", first, len(mine), 0)
        differs = [0.0] * self.world_size
        differs[self.rank] = float(first.raw != mine)
        others = [rank for rank, value in enumerate(self.mean(differs)) if value > 0]
        if others:
            raise InvalidArgument(f"jigsaw: rank {others[0]} has other parameters or blocks than rank 0; build the same model "
                                  f"with the same blocks on all ranks (this is rank {self.rank}: {len(self._trained)} parameters, "
                                  f"{sum(p.tensor.numel() for p in self._trained)} elements, {self._count} blocks)")

    def _broadcast_tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        if self.world_size == 1:
            return
        bucket: List[torch.Tensor] = []
        size = 0
        for tensor in tensors:
            bucket.append(tensor)
            size += tensor.numel() * tensor.element_size() + _ALIGN
            if size >= _BUCKET_BYTES:
                self._broadcast_bucket(bucket)
                bucket, size = [], 0
        if bucket:
            self._broadcast_bucket(bucket)

    def _broadcast_bucket(self, tensors: Sequence[torch.Tensor]) -> None:
        parts, places, offset = [], [], 0
        with torch.no_grad():
            for tensor in tensors:
                raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                padding = -raw.numel() % _ALIGN
                parts += [raw, torch.zeros(padding, dtype=torch.uint8)]
                places.append((offset, raw.numel()))
                offset += raw.numel() + padding
            whole = torch.cat(parts)
            self._context.call("broadcast", whole.data_ptr(), whole.numel(), 0)
            if self.rank == 0:
                return
            for tensor, (at, numel) in zip(tensors, places):
                value = whole[at:at + numel].view(tensor.dtype).view(tensor.shape)
                tensor.detach().copy_(value)

    # What the session is

    @property
    def rank(self) -> int:
        """This process's rank, 0 .. world_size - 1."""
        return self._context.library.rank(self._context.handle)

    @property
    def world_size(self) -> int:
        """How many ranks train together."""
        return self._context.library.world_size(self._context.handle)

    @property
    def blocks(self) -> Optional[List[List[str]]]:
        """Names of the parameters of each block, from the input to the loss; None while they are being found, in the first three
        iterations. attach(blocks=session.blocks) gives the same blocks again."""
        if self._learning:
            return None
        return [[self._flat.names[i] for i in members] for members in self._flat.members]

    @property
    def num_blocks(self) -> int:
        """Number of blocks; while they are being found, the number asked for."""
        return self._count if self._learning else self._flat.count

    @property
    def next_iteration(self) -> int:
        """Number of the iteration that begins next: first_iteration of a run that resumes from here."""
        return self._first_iteration + self._begun

    def stats(self) -> Dict[str, Any]:
        """iterations, turns, turn_s (held), payload_bytes_sent, mean_depth_fraction (this rank's, by backward time), attached
        (to a jigsawd), gpu_index (on the node, -1: not known)."""
        stats = _library.sized(_library.Stats())
        self._context.call("get_stats", ctypes.byref(stats))
        return {"iterations": stats.iterations, "turns": stats.turns, "turn_s": stats.turn_ns / 1e9,
                "payload_bytes_sent": stats.payload_bytes_sent, "mean_depth_fraction": stats.mean_depth_fraction,
                "attached": bool(stats.attached), "gpu_index": stats.gpu_index}

    # One iteration

    def iteration(self) -> Iteration:
        """`with session.iteration() as it:` around one iteration's forward and backward.

        On entry: waits for this rank's turn, resets gradients, freezes what is beyond this rank's depth. On exit: gives the turn
        back, waits until every .grad holds the mean over the ranks that computed it, takes the next turn. The optimizer steps
        after it. zero_grad() is not needed and does no harm.

        Raises PeerLeft, Timeout, Disagree (naming rank and iteration), InvalidState for calls at the wrong moment. An exception
        inside ends this rank's session, and the others hear of it; a rank that is alone goes on with the next iteration.
        """
        return Iteration(self)

    def _expect_open(self, iteration: Iteration, call: str) -> None:
        if self._open is not iteration:
            raise InvalidState(f"jigsaw: {call} belongs inside `with session.iteration() as it:`")

    def _begin(self, iteration: Iteration) -> None:
        if self._open is not None:
            raise InvalidState(f"jigsaw: iteration {self._open.number} is open; leave its `with` block before the next one")
        frozen = [p.name for p in self._trained if not p.tensor.requires_grad]
        if frozen:
            raise InvalidState(f"jigsaw: parameter {frozen[0]} was frozen after attach; close() the session, freeze, and attach "
                               "again, so that all ranks leave it out")
        self._synchronised = False
        self._tell_report()
        self._tell_stream()
        now = self._now
        self._context.patiently(self._context.library.begin_iteration, ctypes.byref(now))
        iteration.number, iteration.depth = now.iteration, now.depth
        iteration.num_blocks, iteration.generation = now.num_blocks, now.generation
        self._flat.begin(iteration.depth)
        self._hooks.arrived = self._learn if self._learning else self._gradient_ready
        self._arrivals = []
        self._forward_end_ns = 0
        self._open = iteration
        self._hooks.armed = True

    def _forward_ended(self) -> None:
        self._forward_end_ns = time.monotonic_ns()
        self._context.call("end_forward")

    def _gradient_ready(self, i: int) -> None:
        flat = self._flat
        if flat.done[i]:
            self._second_gradient(i)
        if self._forward_end_ns == 0:
            self._forward_ended()
        flat.done[i] = 1
        self._watch.note(i)
        block = flat.of_parameter[i]
        if self._watch.only[block]:
            if flat.complete(block):
                self._send(block)
            else:
                self._watch.all_of(block)
            return
        flat.left[block] -= 1
        if flat.left[block] == 0:
            self._send(block)

    def _send(self, block: int) -> None:
        self._flat.take(block)
        self._tell_stream()
        self._context.check(self._block_ready(self._context.handle, block))

    def _learn(self, i: int) -> None:
        if not self._arrivals and self._forward_end_ns == 0:
            self._forward_ended()
        self._arrivals.append((i, time.monotonic_ns()))
        self._gradient_ready(i)

    def _second_gradient(self, i: int) -> None:
        raise InvalidState(f"jigsaw: parameter {self._trained[i].name} (or one beside it) got a second gradient in one iteration; put every backward "
                           "pass but the last into `with it.accumulate():`, or add the losses up and call backward() once")

    def _next_micro_batch(self) -> None:
        self._context.call("yield_turn")
        self._context.patiently(self._context.library.turn_begin)
        self._forward_end_ns = 0
        self._hooks.armed = True

    def _end(self, iteration: Iteration) -> None:
        self._expect_open(iteration, "leaving")
        self._hooks.armed = False
        try:
            if not any(p.tensor.grad is not None for p in self._trained):
                raise InvalidState(f"jigsaw: rank {self.rank}, iteration {iteration.number}: no gradient came; call loss.backward() "
                                   "inside `with session.iteration():`")
            flat = self._flat
            changed = flat.changed()
            if changed is not None:
                self._second_gradient(flat.members[changed][0])
            self._watch.end_iteration(iteration.full)
            for block in range(iteration.num_blocks - 1, iteration.num_blocks - iteration.depth - 1, -1):
                if flat.left[block] != 0:
                    self._send(block)
            self._tell_stream()
            self._context.call("end_compute")
            self._wait_for_gradients(iteration)
            if self._learning:
                self._note_costs()
        except BaseException:
            self._give_up()
            raise
        self._open = None
        self._begun += 1

    def _note_costs(self) -> None:
        """The time between two gradients is the cost of what lies between; the least of those taken warm counts."""
        before, costs = self._forward_end_ns, {}
        for i, at in self._arrivals:
            costs[i] = min(max(1, at - before), self._costs.get(i, 1 << 62))
            before = at
        self._learning -= 1
        if self._learning < LEARNING_ITERATIONS - 1:
            self._costs = costs
        if self._learning == 0:
            self._find_blocks()

    def _find_blocks(self) -> None:
        """Rank 0's order and costs are everybody's. The gradients just synchronised move to the new blocks' buffers."""
        arrivals = [(i, self._costs[i]) for i, _ in self._arrivals]
        units = _blocks.by_arrival(self._trained, arrivals) if arrivals else _blocks.by_registration(self._trained)
        of_parameter = (ctypes.c_int32 * len(self._trained))(*self._cut(units))
        self._context.call("broadcast", of_parameter, ctypes.sizeof(of_parameter), 0)
        flat = self._make_flat(list(of_parameter))
        self._context.call("set_blocks", flat.c_blocks(), flat.count)
        self._flat, self._count = flat, flat.count
        self._watch = Watch(self._hooks, flat)
        self._defined = (1 << flat.count) - 1
        for block in range(flat.count):
            flat.take(block)
        self._note_blocks()

    def _note_blocks(self) -> None:
        """Beside the directive log, since a replay needs the same blocks."""
        if self._directive_log is not None and self.rank == 0 and not self._learning:
            with open(self._directive_log + ".blocks", "w", encoding="utf-8") as file:
                json.dump(self.blocks, file)

    def _wait_for_gradients(self, iteration: Iteration) -> None:
        context, flat = self._context, self._flat
        result = self._result
        deadline = time.monotonic() + self._timeout_s
        while True:
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            code = context.library.sync(context.handle, ctypes.byref(result), left_ms)
            if code != _library._INTERRUPTED:
                break
        context.check(code)
        self._defined = iteration.defined_blocks = result.defined_blocks
        iteration.sync_ms, iteration.turn_wait_ms = result.sync_ns / 1e6, result.turn_wait_ns / 1e6
        flat.freeze_below(0)
        flat.publish(self._defined)
        self._synchronised = True

    def _give_up(self) -> None:
        """After an exception: with peers there is no way back into step, and they shall hear of it at once."""
        self._hooks.armed = False
        iteration, self._open = self._open, None
        flat = self._flat
        if not self._context.closed and self.world_size == 1 and iteration is not None:
            self._finish_alone(flat, iteration)
        else:
            self.close()
        flat.freeze_below(0)
        reset_gradients([p.tensor for p in self._trained])

    def _finish_alone(self, flat: FlatBlocks, iteration: Iteration) -> None:
        library, handle = self._context.library, self._context.handle
        for block in range(flat.count - iteration.depth, flat.count):
            if flat.left[block] != 0:
                library.block_ready(handle, block)
        library.end_compute(handle)
        library.sync(handle, ctypes.byref(self._result), int(self._timeout_s * 1000))
        self._begun += 1

    # Between iterations

    def _expect_synchronised(self, call: str) -> None:
        if not self._synchronised:
            raise InvalidState(f"jigsaw: {call} belongs between an iteration's `with` block and the next one: only there are "
                               "gradients the means over the ranks")

    def step(self, optimizer: Optional[torch.optim.Optimizer] = None, max_norm: Optional[float] = None) -> bool:
        """optimizer.step() unless a gradient is infinite or not a number, after clipping to `max_norm` if given.

        optimizer: default the one given to attach(). Returns whether it stepped: the same on all ranks, without a message.
        """
        optimizer = optimizer if optimizer is not None else self._optimizer
        if optimizer is None:
            raise InvalidArgument("jigsaw: step(): which optimizer? Give it here or to attach()")
        if not self.finite():
            return False
        if max_norm is not None:
            self.clip_grad_norm(max_norm)
        optimizer.step()
        return True

    def finite(self) -> bool:
        """False when any mean gradient is infinite or not a number. The step is then to be skipped, and libjigsaw was told so:
        ranks that go on all the same are found in the next iteration (Disagree)."""
        self._expect_synchronised("finite()")
        good = all_finite(self._flat.defined(self._defined))
        if not good:
            self._context.call("skip_step")
        return good

    def scale_gradients(self, factor: float) -> None:
        """Multiplies all mean gradients: 1 / loss scale, 1 / micro-batches."""
        self._expect_synchronised("scale_gradients()")
        for buffer in self._flat.defined(self._defined):
            buffer.mul_(factor)

    def clip_grad_norm(self, max_norm: float) -> float:
        """Scales the mean gradients so that their global norm is at most `max_norm` > 0; returns what it was.

        The norm is over the means of all blocks that somebody computed, which every rank has: clipping inside the iteration
        would measure another model on every rank. The same bits on all ranks.
        """
        if not max_norm > 0:
            raise InvalidArgument(f"jigsaw: clip_grad_norm({max_norm}); give a positive norm")
        self._expect_synchronised("clip_grad_norm()")
        norm = math.sqrt(square_sum(self._flat.defined(self._defined)))
        if norm > max_norm:
            self.scale_gradients(max_norm / norm)
        return norm

    def report(self, loss: Optional[float] = None, progress: Optional[float] = None) -> None:
        """Tells jigsawd how training goes, from the next iteration on: loss, and progress 0..1 of the run. Optional; progress
        makes placement of jobs better."""
        if loss is not None:
            self._report.loss = float(loss)
        if progress is not None:
            self._report.progress = float(progress)

    def _tell_report(self) -> None:
        if self._optimizer is not None:
            rate = max(float(group["lr"]) for group in self._optimizer.param_groups)
            self._peak_lr = rate if self._peak_lr is None else max(self._peak_lr, rate)
            self._report.lr_over_peak = rate / self._peak_lr if self._peak_lr > 0 else math.nan
        if self._cuda:
            self._report.memory_bytes = torch.cuda.memory_allocated(self._device)
            self._report.memory_peak_bytes = torch.cuda.max_memory_allocated(self._device)
        self._context.call("report", ctypes.byref(self._report))

    def _tell_stream(self) -> None:
        """Autograd runs hooks on the stream of the forward operation, so this is asked wherever a gradient is complete."""
        if not self._cuda:
            return
        stream = torch.cuda.current_stream(self._device).cuda_stream
        if stream != self._stream:
            self._context.call("set_stream", stream)
            self._stream = stream

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """A turn on the GPU outside iterations: `with session.turn(): evaluate()`. Any rank alone may take one."""
        if self._open is not None:
            raise InvalidState(f"jigsaw: turn() inside iteration {self._open.number}, which has its own turn; leave it first")
        self._context.patiently(self._context.library.turn_begin)
        try:
            yield
        finally:
            if not self._context.closed:
                self._context.call("yield_turn")  # not turn_end: mean() inside may have given it back

    def mean(self, values: Sequence[float]) -> List[float]:
        """The mean of each value over the ranks, summed in rank order in float64: the same bits everywhere. All ranks call it."""
        numbers = (ctypes.c_double * len(values))(*values)
        self._context.call("mean", numbers, len(values))
        return list(numbers)

    def broadcast_buffers(self) -> None:
        """Rank 0's buffers (BatchNorm statistics) on every rank: before evaluation or saving. All ranks call it."""
        self._broadcast_tensors(list(self.model.buffers()))

    def average_buffers(self) -> None:
        """The mean over the ranks of every floating-point buffer (BatchNorm statistics). All ranks call it; others are left."""
        buffers = floating(list(self.model.buffers()))
        if not buffers or self.world_size == 1:
            return
        with torch.no_grad():
            whole = torch.cat([b.detach().cpu().reshape(-1).to(torch.float64) for b in buffers])
            self._context.call("mean", whole.data_ptr(), whole.numel())
            offset = 0
            for buffer in buffers:
                buffer.copy_(whole[offset:offset + buffer.numel()].view(buffer.shape))
                offset += buffer.numel()

    # Leaving

    def leave(self) -> None:
        """This rank ends after the iteration that is open or was last finished. Not needed where all ranks end together."""
        self._context.call("leave")

    def close(self) -> None:
        """Leaves the job; parameters keep their values and last gradients. Twice is fine. Clean when all ranks leave after the
        same iteration, else the others get PeerLeft naming this rank."""
        self._hooks.armed = False
        self._hooks.remove()
        self._forward_hook.remove()
        self._finalizer.detach()
        self._context.detach()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _forward_hook(weak: "weakref.ref[Session]") -> Callable[..., None]:
    def ended(*_: Any) -> None:
        session = weak()
        if session is not None and session._hooks.armed:
            session._forward_ended()

    return ended


def _detach_in(pid: int, context: Context) -> None:
    if os.getpid() == pid:
        context.detach()


def _log_function(log: Optional[Callable[[str], None]]) -> Any:
    if log is None:
        return None
    return _library.LogFunction(lambda _, line: log(line.decode(errors="replace")))


def attach(model: torch.nn.Module, blocks: Union[None, int, Sequence[BlockLike]] = None,
           optimizer: Optional[torch.optim.Optimizer] = None, policy: Optional[str] = None, backend: Optional[str] = None, *,
           levels: int = 0, full_workers: int = 0, warmup_iterations: int = 0, seed: int = 0, first_iteration: int = 0,
           min_depth_fraction: float = 0.0, peak_lr: Optional[float] = None, sync_strategy: Optional[str] = None,
           directive_log: Optional[str] = None, replay_log: Optional[str] = None, timeout: float = 60.0, broadcast: bool = True,
           rank: Optional[int] = None, world_size: Optional[int] = None, local_rank: Optional[int] = None,
           log: Optional[Callable[[str], None]] = None) -> Session:
    """Joins the job with this model; every rank calls it. In place of DistributedDataParallel, not around or inside it.

    model: parameters that require a gradient now are trained and synchronised; others are left out for good. One device, float32,
        float64 or bfloat16.
    blocks: from the input to the loss, each a module, a name, or a list of these and of parameters; or how many shall be found
        (default 4): by the order and times of gradients in the first three iterations, or, on a GPU, by registration and size.
    optimizer: if given, the number of full-depth workers follows its learning rate (at the peak all ranks run full depth), and
        session.step() uses it. peak_lr: of a resumed run; default the highest rate seen.
    policy: "full", "two-level", "rotate", "shuffle", "fixed" or "uniform", while no jigsawd directs; default full depth. levels, full_workers,
        warmup_iterations, seed, min_depth_fraction (mean, by backward time) as in jigsaw_attach(3).
    backend: default "gloo" for a model on the CPU, "nccl" on a GPU.
    first_iteration: session.next_iteration of the run that goes on.
    directive_log: rank 0 appends every agreed directive to this file, and writes the blocks it found to FILE.blocks. replay_log:
        follow such a file exactly (all ranks read FILE.blocks unless blocks are given).
    timeout: seconds, of rendezvous, collectives and sync. broadcast: start from rank 0's parameters and buffers.
    rank, world_size, local_rank: default from torchrun's or Slurm's variables, or of torch.distributed's process group.
    log: gets libjigsaw's lines; default stderr.

    Raises InvalidArgument where the model cannot be used, saying what to change; Timeout or PeerLeft where ranks do not meet;
    ImportError where libjigsaw is not found.
    """
    options = dict(policy=policy, backend=backend, levels=levels, full_workers=full_workers, warmup_iterations=warmup_iterations,
                   seed=seed, first_iteration=first_iteration, min_depth_fraction=min_depth_fraction,
                   sync_strategy=sync_strategy, directive_log=directive_log, replay_log=replay_log, timeout=timeout, rank=rank,
                   world_size=world_size, local_rank=local_rank, log=log)
    return Session(model, blocks, optimizer, options, broadcast, peak_lr)
