# SPDX-License-Identifier: Apache-2.0
"""libjigsaw through ctypes: structures of <jigsaw/jigsaw.h>, errors, and where the library is.

ctypes releases the GIL in every call, so other threads run while a rank waits. Waits end every 100 ms with
JIGSAW_INTERRUPTED and are called again (`Context.patiently`): in between Python looks for signals, so that Ctrl-C works.
"""
from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Callable, Dict, List, Optional, Type

MAX_BLOCKS = 64  # JIGSAW_MAX_BLOCKS
FLOAT32, FLOAT64, BFLOAT16 = 0, 1, 2

_SUCCESS, _INTERRUPTED = 0, 8
_SONAME = "libjigsaw.so.0"


class Error(RuntimeError):
    """What libjigsaw reports; `code` is the jigsaw_result_t."""

    def __init__(self, text: str, code: int = 9) -> None:
        super().__init__(text)
        self.code = code


class InvalidArgument(Error, ValueError):
    """An argument is out of its range, or a model cannot be used as it is; the text says what to change."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text, code)


class InvalidState(Error):
    """A call at the wrong moment; the text says which call is missing."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text, code)


class PeerLeft(Error):
    """Another rank ended; the text names it and the iteration."""


class Timeout(Error):
    """Another rank did not answer in time; the text names it."""


class Disagree(Error):
    """Ranks do not agree on the plan of an iteration."""


class NoBackend(Error):
    """The communication back end is not in this build or not on this machine."""


_ERRORS: Dict[int, Type[Error]] = {
    1: InvalidArgument, 2: InvalidState, 4: PeerLeft, 5: Timeout, 6: Disagree, 7: NoBackend,
}


class Block(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("count", ctypes.c_size_t), ("type", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
    ]


LogFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)


class Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("num_blocks", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
        ("blocks", ctypes.POINTER(Block)),
        ("rank", ctypes.c_int32), ("world_size", ctypes.c_int32), ("local_rank", ctypes.c_int32),
        ("timeout_ms", ctypes.c_uint32),
        ("backend", ctypes.c_char_p), ("policy", ctypes.c_char_p),
        ("levels", ctypes.c_uint32), ("full_workers", ctypes.c_uint32),
        ("warmup_iterations", ctypes.c_uint64), ("seed", ctypes.c_uint64), ("first_iteration", ctypes.c_uint64),
        ("min_depth_fraction", ctypes.c_double),
        ("sync_strategy", ctypes.c_char_p), ("directive_log", ctypes.c_char_p), ("replay_log", ctypes.c_char_p),
        ("thread_world", ctypes.c_void_p),
        ("log", LogFunction), ("log_arg", ctypes.c_void_p),
        ("wake", ctypes.c_void_p), ("wake_arg", ctypes.c_void_p),
        ("cuda_device", ctypes.c_int32), ("reserved2", ctypes.c_uint32),
    ]


class Iteration(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("iteration", ctypes.c_uint64), ("depth", ctypes.c_uint32),
        ("num_blocks", ctypes.c_uint32), ("generation", ctypes.c_uint64),
    ]


class SyncResult(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("iteration", ctypes.c_uint64), ("defined_blocks", ctypes.c_uint64),
        ("last", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("sync_ns", ctypes.c_uint64),
        ("turn_wait_ns", ctypes.c_uint64),
    ]


class Report(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("loss", ctypes.c_double), ("progress", ctypes.c_double),
        ("lr_over_peak", ctypes.c_double), ("memory_bytes", ctypes.c_uint64), ("memory_peak_bytes", ctypes.c_uint64),
    ]


class Stats(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("iterations", ctypes.c_uint64), ("turns", ctypes.c_uint64),
        ("turn_ns", ctypes.c_uint64), ("payload_bytes_sent", ctypes.c_uint64), ("mean_depth_fraction", ctypes.c_double),
        ("attached", ctypes.c_uint32), ("gpu_index", ctypes.c_int32),
    ]


def sized(structure: Any) -> Any:
    """The structure with its own size in it, which libjigsaw asks for."""
    structure.size = ctypes.sizeof(structure)
    return structure


_CONTEXT = ctypes.c_void_p
_FUNCTIONS: Dict[str, List[Any]] = {
    "attach": [ctypes.POINTER(_CONTEXT), ctypes.POINTER(Config)],
    "set_blocks": [_CONTEXT, ctypes.POINTER(Block), ctypes.c_uint32],
    "detach": [_CONTEXT],
    "set_stream": [_CONTEXT, ctypes.c_void_p],
    "begin_iteration": [_CONTEXT, ctypes.POINTER(Iteration)],
    "block_ready": [_CONTEXT, ctypes.c_uint32],
    "end_forward": [_CONTEXT],
    "end_compute": [_CONTEXT],
    "sync": [_CONTEXT, ctypes.POINTER(SyncResult), ctypes.c_uint32],
    "skip_step": [_CONTEXT],
    "turn_begin": [_CONTEXT],
    "turn_end": [_CONTEXT],
    "yield_turn": [_CONTEXT],
    "report": [_CONTEXT, ctypes.POINTER(Report)],
    "leave": [_CONTEXT],
    "broadcast": [_CONTEXT, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32],
    "mean": [_CONTEXT, ctypes.c_void_p, ctypes.c_size_t],
    "rank": [_CONTEXT],
    "world_size": [_CONTEXT],
    "get_stats": [_CONTEXT, ctypes.POINTER(Stats)],
}


def candidates() -> List[str]:
    """Where libjigsaw is looked for, first to last."""
    named = os.environ.get("JIGSAW_LIBRARY")
    if named:
        return [named]
    places = []
    try:
        from ._where import LIBDIR  # written by `make install`

        places.append(os.path.join(LIBDIR, _SONAME))
    except ImportError:
        pass
    places.append(os.path.join(sys.prefix, "lib", _SONAME))
    return [place for place in places if os.path.exists(place)] + [_SONAME]


class Library:
    """The loaded libjigsaw; functions without their prefix: library.attach is jigsaw_attach."""

    def __init__(self) -> None:
        failures = []
        for place in candidates():
            try:
                self._dll = ctypes.CDLL(place)
                self.path = place
                break
            except OSError as error:
                failures.append(f"{place}: {error}")
        else:
            raise ImportError(
                "jigsaw: cannot load libjigsaw (" + "; ".join(failures) + "). Set JIGSAW_LIBRARY to the file libjigsaw.so.0, "
                "or install it (scripts/build --prefix DIR --install) where the loader finds it (ldconfig, LD_LIBRARY_PATH)")
        try:
            self._bind()
        except AttributeError as missing:
            raise ImportError(f"jigsaw: {self.path} is older than this package: {missing}; build and install both from one "
                              "source tree, or set JIGSAW_LIBRARY to the newer library") from None

    def _bind(self) -> None:
        for name, arguments in _FUNCTIONS.items():
            function = getattr(self._dll, "jigsaw_" + name)
            function.argtypes = arguments
            function.restype = ctypes.c_int32
            setattr(self, name, function)
        self._dll.jigsaw_last_error.argtypes = [_CONTEXT]
        self._dll.jigsaw_last_error.restype = ctypes.c_char_p
        self._dll.jigsaw_version.restype = ctypes.c_char_p

    def version(self) -> str:
        return self._dll.jigsaw_version().decode()

    def last_error(self, context: Optional[ctypes.c_void_p]) -> str:
        text = self._dll.jigsaw_last_error(context)
        return (text or b"").decode(errors="replace")

    def error(self, code: int, context: Optional[ctypes.c_void_p]) -> Error:
        return _ERRORS.get(code, Error)(self.last_error(context), code)


_loaded: Optional[Library] = None


def load() -> Library:
    """libjigsaw, loaded once. ImportError says where it was looked for and what to do."""
    global _loaded
    if _loaded is None:
        _loaded = Library()
    return _loaded


def interrupting_wake(config: Config) -> None:
    """Let every wait end with JIGSAW_INTERRUPTED after 100 ms.

    The callback is libc's abs(1), always 1: a callback in Python would lose a KeyboardInterrupt that is raised inside it, and
    would take the GIL on a thread that holds none.
    """
    config.wake = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p)
    config.wake_arg = ctypes.c_void_p(1)


class Context:
    """Owns a jigsaw_context_t and turns results into exceptions."""

    def __init__(self, config: Config) -> None:
        self.library: Any = load()
        self._handle: Optional[ctypes.c_void_p] = None
        handle = ctypes.c_void_p()
        code = self.library.attach(ctypes.byref(handle), ctypes.byref(config))
        if code != _SUCCESS:
            raise self.library.error(code, None)
        self._handle = handle

    @property
    def handle(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise InvalidState("jigsaw: this session was closed; call jigsaw.attach() again")
        return self._handle

    @property
    def closed(self) -> bool:
        return self._handle is None

    def check(self, code: int) -> None:
        if code != _SUCCESS:
            raise self.library.error(code, self._handle)

    def call(self, name: str, *arguments: Any) -> None:
        self.check(getattr(self.library, name)(self.handle, *arguments))

    def patiently(self, function: Callable[..., int], *arguments: Any) -> None:
        """Calls again as long as the wait was interrupted; signal handlers run in between."""
        while True:
            code = function(self.handle, *arguments)
            if code != _INTERRUPTED:
                return self.check(code)

    def detach(self) -> None:
        """Leaves the job. Never raises for what other ranks do: to this rank the end is what it asked for."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self.library.detach(handle)
