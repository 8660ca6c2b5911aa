/* SPDX-License-Identifier: Apache-2.0
 *
 * No hold and wait (docs/protocol.md "Gate"): three jobs of two ranks on the GPU pairs {0,1}, {1,2}, {2,0}. A rank takes
 * its GPU's turn, computes, gives the turn back and only then waits for its peer; its collective's kernel comes onto the
 * GPU when both ranks have their gradients ready. Whoever asks may be granted next, on each GPU for itself: no order of
 * turns may deadlock. Job 1 ends earlier than the others, or (-DEQUAL) does not.
 *
 * Checked: every rank ends (no invalid end state), and a GPU computes for one rank at a time (assert).
 * Mutants, each of which must fail:
 *   HOLD          the turn is kept until the peer has its gradients
 *   SPINS         the collective's kernel is launched at once and spins on the GPU until the peer's is there too
 *   NEXT_FIRST    the next turn is taken before the gradients of this iteration are complete (with EQUAL)
 *   ALL_AT_ONCE   nobody gives turns: two ranks compute on one GPU (fails the assertion)
 */
#ifndef ITERATIONS
#define ITERATIONS 2
#endif
#ifdef EQUAL
#define OF_JOB(j) ITERATIONS
#else
#define OF_JOB(j) (j == 1 -> 1 : ITERATIONS)
#endif

byte owner[3];     /* of the GPU's turn: rank's number + 1 */
byte kernels[3];   /* collective kernels that occupy the GPU */
byte computing[3];
byte ready[3];     /* [job] gradients ready, all iterations and ranks together */

proctype Rank(byte job; byte gpu; byte me)
{
    byte iteration = 0;
    do
    :: iteration == OF_JOB(job) -> break
    :: iteration < OF_JOB(job) ->
#ifndef ALL_AT_ONCE
#ifdef NEXT_FIRST
        if
        :: owner[gpu] == me /* since the last iteration */
        :: atomic { owner[gpu] == 0 -> owner[gpu] = me }
        fi;
#else
        atomic { owner[gpu] == 0 -> owner[gpu] = me };
#endif
#endif
        atomic { kernels[gpu] == 0 -> computing[gpu]++; assert(computing[gpu] == 1) };
        computing[gpu]--;
#if !defined(HOLD) && !defined(ALL_AT_ONCE)
        atomic { assert(owner[gpu] == me); owner[gpu] = 0 };
#endif
#ifdef SPINS
        kernels[gpu]++;
        ready[job]++;
        ready[job] >= 2 * (iteration + 1);
        kernels[gpu]--;
#else
        ready[job]++;
#ifdef NEXT_FIRST
        if
        :: iteration + 1 < OF_JOB(job) -> atomic { owner[gpu] == 0 -> owner[gpu] = me }
        :: iteration + 1 == OF_JOB(job)
        fi;
#endif
        ready[job] >= 2 * (iteration + 1);
        atomic { kernels[gpu]++; kernels[gpu]-- }; /* both are there: it runs through */
#endif
#ifdef HOLD
        owner[gpu] = 0;
#endif
        iteration++
    od
}

init {
    atomic {
        run Rank(0, 0, 1);
        run Rank(0, 1, 2);
        run Rank(1, 1, 3);
        run Rank(1, 2, 4);
        run Rank(2, 2, 5);
        run Rank(2, 0, 6)
    }
}
