/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate between processes and the arbiter of one GPU: runtime/page/gate.cpp and arbiter_side.hpp, one load or store
 * a step. docs/protocol.md "Gate".
 *
 * Checked
 *   assert   a granted turn is alone: no other process attached to this jigsawd computes beside it. (Two turns taken
 *            before their gates closed may meet: nobody gave them.)
 *   end      no wake-up is lost: every process ends. Nothing here depends on the 100 ms look, which is left out; with
 *            -DLOOKS it is there, and must do no harm.
 * Broken on purpose: a process is killed anywhere (-DKILLS), jigsawd is killed and starts again (-DRESTART), it is
 * stopped for a while (-DSILENCE), a wait is given up (-DCANCELS).
 * Mutants, each of which must fail: IDLE_WAIT BELL_FIRST BEGIN_ORDER END_ORDER CLOSE_LATE IGNORE_OPEN DRAIN_LATE NO_PIDFD
 *
 * With -DLOG a simulation prints "LOG time event process" for every line of the gate log (docs/gate-log.md), which
 * ./replay must accept: that ties its table to this model.
 */
#ifndef N
#define N 2
#endif
#ifndef TURNS
#define TURNS 2
#endif

mtype = { IDLE, RUNNING, WAITING };

/* The words of each pair of pages. */
bool opened[N];
byte grant[N];
byte want[N];
mtype state[N];
bool bell[N];

/* Socket, pidfd. */
bool calls[N];         /* ATTACH is sent */
bool linked[N];        /* attached to the jigsawd of now */
bool alive[N];
bool doomed[N];
bool up;
bool frozen;

/* What is true, for the assertion only. */
bool computing[N];
bool by_grant[N];

#ifdef LOG
int ticks;
bool noted_want[N];
bool noted_hold[N];
#define NOTE(text, q) printf(text, ticks, q); ticks++
#else
#define NOTE(text, q) skip
#endif

inline ring(q) { bell[q] = true }

inline compute(p, granted)
{
    atomic {
        computing[p] = true;
        by_grant[p] = granted;
        other = 0;
        do
        :: other < N ->
            assert(other == p || !(linked[p] && linked[other] && computing[p] && computing[other])
                   || !(by_grant[p] || by_grant[other]));
            other++
        :: else -> break
        od;
        other = 0
    };
    computing[p] = false
}

proctype Process(byte p)
{
    byte turns = 0;
    byte other = 0;
    bool seen;
    {
        do
        :: turns == TURNS -> break
        :: turns < TURNS && !linked[p] ->
            if
            :: up ->
                calls[p] = true;
                (linked[p] || !calls[p]) /* answered, or hung up */
#ifndef LOG
            :: true -> /* nobody there, or no answer yet: this turn is nobody's business */
                compute(p, false);
                turns++
#endif
            fi
        :: turns < TURNS && linked[p] ->
begin:
#ifdef BEGIN_ORDER
            seen = opened[p];
            state[p] = RUNNING;
#else
            state[p] = RUNNING;
            seen = opened[p];
#endif
            if
            :: seen -> compute(p, false)
            :: !seen ->
#ifdef IDLE_WAIT
                state[p] = IDLE;
#else
                state[p] = WAITING;
#endif
#ifdef BELL_FIRST
                ring(p);
                want[p]++;
#else
                want[p]++;
                ring(p);
#endif
                if
                :: linked[p] && grant[p] == want[p] ->
                    state[p] = RUNNING;
                    compute(p, true)
                :: !linked[p] -> compute(p, false) /* jigsawd ended */
#ifdef LOOKS
                :: linked[p] && opened[p] -> goto begin
#endif
#ifdef SILENCE
                :: frozen ->
                    state[p] = RUNNING; /* a jigsawd that goes on finds its holder; the race is speed, not order */
                    skip
#endif
#ifdef CANCELS
                :: linked[p] && turns == 0 ->
                    state[p] = IDLE;
                    ring(p);
                    goto ended
#endif
                fi
            fi;
            if
            :: linked[p] ->
#ifdef END_ORDER
                seen = opened[p];
                state[p] = IDLE;
#else
                state[p] = IDLE;
                seen = opened[p];
#endif
                if
                :: seen
                :: !seen -> ring(p)
                fi
            :: !linked[p]
            fi;
ended:
            turns++
        od;
        if
        :: true
        :: linked[p] -> /* attached, with nothing more to do: nobody may wait for its next bell */
end_idle:   doomed[p]
        fi
    } unless { doomed[p] };
    atomic { computing[p] = false; alive[p] = false }
}

/* One reading decides, and is what the log says. */
inline look(q)
{
    claims_hold = false;
    claims_ask = false;
    now_state = state[q];
    if
#ifdef IDLE_WAIT
    :: now_state == IDLE -> claims_ask = (want[q] != grant[q])
#else
    :: now_state == IDLE
#endif
    :: now_state == WAITING ->
        claims_ask = (want[q] != grant[q]);
        claims_hold = !claims_ask
    :: now_state == RUNNING -> claims_hold = true
    fi;
#ifdef LOG
    d_step {
        if :: noted_hold[q] && !claims_hold -> NOTE("LOG %d release %d\n", q); noted_hold[q] = false :: else fi;
        if :: noted_want[q] && now_state == IDLE -> NOTE("LOG %d cancel %d\n", q); noted_want[q] = false :: else fi;
        if :: claims_ask && !noted_want[q] -> NOTE("LOG %d want %d\n", q); noted_want[q] = true :: else fi
    };
#endif
    skip
}

inline give(q)
{
#ifdef LOG
    d_step { NOTE("LOG %d grant %d\n", q); noted_want[q] = false; noted_hold[q] = !opened[q] };
#endif
    grant[q] = want[q]
}

/* Looks at everybody, then grants to one who asks if nobody holds. Which one is core/timeslice's choice: any, here. */
inline arbitrate()
{
    busy = false;
    asking = N;
    i = 0;
    do
    :: i < N && known[i] ->
        look(i);
        busy = busy || claims_hold;
        if
#ifdef IGNORE_OPEN
        :: claims_ask && !opened[i] -> asking = i
#else
        :: claims_ask -> asking = i
        :: claims_ask && asking < N /* keep the other */
#endif
        :: !claims_ask
#ifdef IGNORE_OPEN
        :: opened[i]
#endif
        fi;
        i++
    :: i < N && !known[i] -> i++
    :: i == N -> break
    od;
    if
    :: !busy && asking < N ->
        i = asking;
        look(i); /* still? it may have given up, and rings then */
        if
        :: claims_ask -> give(i)
        :: !claims_ask
        fi
    :: busy || asking == N
    fi;
    i = 0;
    asking = N
}

inline open_gate(q)
{
    look(q);
    if
    :: claims_ask -> give(q)
    :: !claims_ask
    fi;
    atomic {
        NOTE("LOG %d open %d\n", q);
#ifdef LOG
        noted_hold[q] = false;
#endif
        opened[q] = true
    };
    ring(q) /* stands for the second look of open_gate(): arbitrate() follows every bell */
}

inline close_gate(q)
{
    atomic {
        opened[q] = false;
        NOTE("LOG %d close %d\n", q)
    };
    claims_hold = (state[q] == RUNNING);
#ifdef LOG
    d_step { if :: claims_hold -> NOTE("LOG %d run %d\n", q); noted_hold[q] = true :: else fi };
#endif
    skip
}

/* Closed for all while there are rivals, open for the last one; open for all in the grace after a restart. */
inline set_gates()
{
    i = 0;
    do
    :: i < N && known[i] && opened[i] && nknown > 1 && !grace -> close_gate(i); i++
    :: i < N && known[i] && !opened[i] && nknown == 1 -> open_gate(i); i++
    :: i < N && !(known[i] && opened[i] && nknown > 1 && !grace) && !(known[i] && !opened[i] && nknown == 1) -> i++
    :: i == N -> break
    od;
    i = 0
}

inline welcome(q)
{
    d_step {
        state[q] = IDLE;
        want[q] = 0;
        grant[q] = 0;
        bell[q] = false;
        known[q] = true;
        nknown++;
        opened[q] = (nknown == 1 || grace);
#ifdef LOG
        noted_want[q] = false;
        noted_hold[q] = false;
        if :: opened[q] -> NOTE("LOG %d open %d\n", q) :: else -> NOTE("LOG %d close %d\n", q) fi;
#endif
    };
#ifdef CLOSE_LATE
    d_step { linked[q] = true; calls[q] = false };
    arbitrate();
    set_gates();
#else
    set_gates();
    d_step { linked[q] = true; calls[q] = false };
#endif
}

inline forget(q)
{
    d_step {
        NOTE("LOG %d dead %d\n", q);
        known[q] = false;
        linked[q] = false;
        bell[q] = false;
        nknown--
    };
    set_gates()
}

proctype Arbiter()
{
    bool known[N];
    byte nknown = 0;
    byte i = 0;
    byte p = 0;
    byte asking = N;
    bool busy, claims_hold, claims_ask;
    bool grace = false, restarted = false;
    mtype now_state = IDLE;
    up = true;
end:
    do
    :: atomic { bell[0] -> p = 0 }; goto rung
    :: atomic { bell[1] -> p = 1 }; goto rung
#if N > 2
    :: atomic { bell[2] -> p = 2 }; goto rung
#endif
    :: atomic { calls[0] && !known[0] && alive[0] -> p = 0 }; goto called
    :: atomic { calls[1] && !known[1] && alive[1] -> p = 1 }; goto called
#if N > 2
    :: atomic { calls[2] && !known[2] && alive[2] -> p = 2 }; goto called
#endif
#ifndef NO_PIDFD
    :: atomic { known[0] && !alive[0] -> p = 0 }; goto died
    :: atomic { known[1] && !alive[1] -> p = 1 }; goto died
#if N > 2
    :: atomic { known[2] && !alive[2] -> p = 2 }; goto died
#endif
#endif
#ifdef SILENCE
    :: frozen = true; frozen = false; arbitrate()
#endif
#ifdef RESTART
    :: atomic {
            !restarted && nknown > 0 ->
            restarted = true;
            grace = true;
            up = false;
            nknown = 0;
            i = 0;
            do
            :: i < N -> known[i] = false; linked[i] = false; calls[i] = false; bell[i] = false; i++
            :: else -> break
            od;
            i = 0
       };
#ifdef LOG
       printf("LOG %d start\n", ticks);
#endif
       up = true
    :: grace -> grace = false; set_gates(); arbitrate() /* all are back, or ten seconds have passed */
#endif
    od;
rung:
#ifdef DRAIN_LATE
    arbitrate();
    bell[p] = false;
#else
    bell[p] = false;
    arbitrate();
#endif
    goto end;
called:
    welcome(p);
    arbitrate();
    goto end;
died:
    forget(p);
    arbitrate();
    goto end
}

#ifdef KILLS
proctype Killer()
{
    if
    :: doomed[0] = true
    :: true
    fi
}
#endif

init {
    byte k = 0;
    atomic {
        do
        :: k < N -> alive[k] = true; state[k] = IDLE; run Process(k); k++
        :: else -> break
        od;
        run Arbiter();
#ifdef KILLS
        run Killer()
#endif
    }
}
