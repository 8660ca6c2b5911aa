/* SPDX-License-Identifier: Apache-2.0
 *
 * The agreement between the ranks of a job (docs/protocol.md "Agreement", runtime/sync/agreement.*): an exchange an
 * iteration, started with backward, confirmed before the next iteration's first collective. Rank 0 announces what its
 * page shows, stamped two iterations ahead; nothing new is announced while one is pending. Its jigsawd publishes when
 * it likes, dies (rank 0 then announces full depth, generation 0) and starts again. Any rank may leave.
 *
 * Checked
 *   assert   all ranks run an iteration under the same generation, and change under way never skips an announcement
 *   end      nobody waits for a rank that left: all end, together or told
 * Mutants, each of which must fail:
 *   STAMP_1        first_iteration = current + 1: rank 0 knows before the others do
 *   LOCAL_READ     every rank follows its own page
 *   SILENT_LEAVE   a rank that leaves does not say so
 *   PENDING_TWICE  rank 0 announces while one is pending and forgets the first
 *   NO_CONFIRM     an iteration's collectives do not wait for the exchange before it
 */
#ifndef K
#define K 3
#endif
#ifndef ITERATIONS
#define ITERATIONS 4
#endif
#ifdef STAMP_1
#define STAMP 1
#else
#define STAMP 2
#endif
#define EXCHANGES 6 /* ITERATIONS + 2 */

byte page = 0;             /* wanted generation on rank 0's node; 0: none, or no jigsawd */
byte newest = 0;
byte page_elsewhere = 0;   /* what another node's jigsawd shows */

/* Exchange e: how many have posted, what rank 0 announced (+1; 0: nothing), who leaves. */
byte posted[EXCHANGES];
byte announced[EXCHANGES];
byte leaving[EXCHANGES];

/* The generation that the first rank to get there ran iteration t under (+1), for the assertion. */
byte ran[EXCHANGES];

proctype Agent()
{
    byte changes = 0;
end:
    do
    :: changes < 2 -> atomic { newest++; page = newest; changes++ }
    :: page_elsewhere != page -> page_elsewhere = page
    :: page != 0 && changes < 2 -> atomic { page = 0; changes++ } /* it died; the next one may go on from newest */
    od
}

/* What exchange e said takes effect at iteration e + 2 (STAMP_1: e + 1). */
inline learn(e)
{
    if
    :: announced[e] != 0 -> pending = announced[e]; first = e + STAMP
    :: announced[e] == 0
    fi
}

proctype Rank(byte me)
{
    byte t = 0;
    byte current = 1;          /* generation in force, +1 */
    byte pending = 0;          /* +1; 0: none */
    byte first = 0;
    byte seen;
    bool leave = false, told = false;

    do
    :: t == ITERATIONS || leave || told -> break
    :: t < ITERATIONS && !leave && !told ->
        /* begin: freeze by the plan of t, which the exchange of t-2 has settled */
        atomic {
            if
            :: pending != 0 && first <= t -> current = pending; pending = 0
            :: !(pending != 0 && first <= t)
            fi
        };
#ifdef LOCAL_READ
        seen = (me == 0 -> page : page_elsewhere);
        current = seen + 1;
#endif
        /* backward begins: the exchange of t starts; it never blocks */
        if
        :: t > 0 && t + 1 < ITERATIONS -> leave = true
        :: true
        fi;
        seen = page;
        atomic {
            if
#ifdef PENDING_TWICE
            :: me == 0 && seen + 1 != current -> announced[t] = seen + 1; pending = seen + 1; first = t + STAMP
#else
            :: me == 0 && seen + 1 != current && pending == 0 ->
                announced[t] = seen + 1;
                pending = seen + 1;
                first = t + STAMP
            :: me == 0 && !(seen + 1 != current && pending == 0)
#endif
            :: me != 0
#ifdef PENDING_TWICE
            :: me == 0 && seen + 1 == current
#endif
            fi;
#ifdef SILENT_LEAVE
            if
            :: !leave -> posted[t]++
            :: leave
            fi;
#else
            posted[t]++;
            if
            :: leave -> leaving[t]++
            :: !leave
            fi;
#endif
            seen = 0
        };
#ifdef SILENT_LEAVE
        if
        :: leave -> break
        :: !leave
        fi;
#endif
        /* the exchange of t-1 is confirmed before any collective of t */
#ifndef NO_CONFIRM
        if
        :: t > 0 ->
            posted[t - 1] == K;
            atomic {
                if
                :: me != 0 -> learn(t - 1)
                :: me == 0
                fi;
                told = (leaving[t - 1] != 0)
            }
        :: t == 0
        fi;
#else
        if
        :: t > 0 && posted[t - 1] == K && me != 0 -> learn(t - 1)
        :: true
        fi;
#endif
        if
        :: told -> break /* "rank n left after iteration t-1": no gradient of t is used */
        :: !told
        fi;
        atomic { /* the collectives of t */
            assert(ran[t] == 0 || ran[t] == current);
            ran[t] = current
        };
        t++
    od
}

init {
    byte r = 0;
    atomic {
        do
        :: r < K -> run Rank(r); r++
        :: else -> break
        od;
        run Agent()
    }
}
