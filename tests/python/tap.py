# SPDX-License-Identifier: Apache-2.0
"""TAP for the tests in Python. With ranks, rank 0 prints; a result passes when it did on all ranks."""
import sys
import traceback


class Tap:
    def __init__(self, gather=None, rank=0):
        self.number = self.failed = 0
        self.gather, self.rank = gather, rank

    def result(self, good, name, why=""):
        verdicts = self.gather((bool(good), why)) if self.gather else [(bool(good), why)]
        passed = all(v for v, _ in verdicts)
        self.number += 1
        self.failed += not passed
        if self.rank == 0:
            print(f"{'ok' if passed else 'not ok'} {self.number} - {name}")
            for rank, (v, text) in enumerate(verdicts):
                if not v:
                    print("\n".join(f"# rank {rank}: {line}" for line in (text or "failed").splitlines()))
            sys.stdout.flush()

    def case(self, name, function, *arguments):
        """One result: passes unless the function raises."""
        try:
            function(*arguments)
        except Exception:
            self.result(False, name, traceback.format_exc())
        else:
            self.result(True, name)

    def done(self):
        if self.rank == 0:
            print(f"1..{self.number}")
        return 1 if self.failed else 0


def refused(error, says, function, *arguments, **named):
    """The call raises `error` and its text holds `says`."""
    try:
        function(*arguments, **named)
    except error as raised:
        assert says in str(raised), f"says: {raised}\nnot: {says}"
        return raised
    raise AssertionError(f"{error.__name__} was not raised")
