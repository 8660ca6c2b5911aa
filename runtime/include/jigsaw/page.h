/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The two pages that a training process and its jigsawd share. docs/protocol.md tells the story; this file is the layout.
 *
 * Each process has its own pair, made by jigsawd as sealed memfds and passed over its socket:
 *
 *   directive page   jigsawd writes, the process reads (F_SEAL_FUTURE_WRITE: writing is impossible for it)
 *   report page      the process writes, jigsawd reads and range-checks every value it uses
 *
 * Who may run beside whom:
 *   gate, grant, want, state          any time, seq_cst, one writer each
 *   everything under a seq counter    one writer; readers loop:
 *
 *       do { s = load_acquire(seq); if (s & 1) continue;
 *            copy every field with acquire loads;
 *       } while (s & 1 || load_acquire(seq) != s);
 *
 *   The writer stores seq odd (release), the fields (release), seq even (release). No bare fences: the thread
 *   sanitizer does not understand them.
 *
 * Growth: fields are only ever added, in the reserved room or at the end. `version` counts additions;
 * `compatible` is the oldest version whose readers still understand the page. A reader that does not find its own
 * version between the two treats the page as absent.
 * All integers are native-endian: a page never leaves its machine. Times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef JIGSAW_PAGE_H
#define JIGSAW_PAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define JIGSAW_PAGE_ASSERT(x, text) static_assert(x, text)
extern "C" {
#else
#define JIGSAW_PAGE_ASSERT(x, text) _Static_assert(x, text)
#endif

#define JIGSAW_PAGE_MAGIC_DIRECTIVE 0x4a534449u /* "JSDI" */
#define JIGSAW_PAGE_MAGIC_REPORT 0x4a535250u    /* "JSRP" */
#define JIGSAW_PAGE_VERSION 1u
#define JIGSAW_PAGE_COMPATIBLE 1u
#define JIGSAW_PAGE_BYTES 4096u

#define JIGSAW_UNIFORM_PERIOD 8u /**< iterations after which JIGSAW_POLICY_UNIFORM repeats */
#define JIGSAW_MAX_LEVELS 16u  /**< levels of depth in a directive */
#define JIGSAW_MAX_BLOCKS 64u  /**< blocks of a model */
#define JIGSAW_MAX_RIVALS 8u   /**< co-residents told to a process */

enum jigsaw_gate { JIGSAW_GATE_OPEN = 0, JIGSAW_GATE_CLOSED = 1 };
/** WAITING: asked for turn number `want`; once `grant` equals it the process holds that turn, awake or not. */
enum jigsaw_state { JIGSAW_STATE_IDLE = 0, JIGSAW_STATE_RUNNING = 1, JIGSAW_STATE_WAITING = 2 };

/** Role policies; docs/glossary.md says what each does. Numbers never change meaning. */
enum jigsaw_policy {
    JIGSAW_POLICY_FULL = 0,      /**< everybody runs full depth */
    JIGSAW_POLICY_TWO_LEVEL = 1, /**< full_workers of N at full depth, the others at the last block, rotating */
    JIGSAW_POLICY_ROTATE = 2,    /**< levels 1..L, cyclic */
    JIGSAW_POLICY_SHUFFLE = 3,   /**< levels 1..L, permuted by (seed, iteration) */
    JIGSAW_POLICY_FIXED = 4,     /**< level of a rank never changes; for study */
    JIGSAW_POLICY_UNIFORM = 5    /**< all ranks alike: full depth in full_workers of JIGSAW_UNIFORM_PERIOD iterations, evenly
                                      spread, the last block in the others */
};

/** A co-resident of this process's GPU, as its jigsawd sees it. */
typedef struct jigsaw_rival {
    uint32_t job_id;
    uint32_t older;      /**< 1 when that job started before this one (ties: lower job id) */
    uint64_t generation; /**< of its agreed directive, 0 when it has none */
    uint64_t iteration;  /**< that it is in */
    int32_t phase;       /**< of its agreed directive */
    uint32_t policy;     /**< of its agreed directive, enum jigsaw_policy */
} jigsaw_rival_t;

/** What else is known of a rival: enough to know its role on this GPU in any iteration (runtime/plan/roles.hpp). */
typedef struct jigsaw_rival_role {
    int32_t offset;        /**< its iteration beside this process's iteration, minus this process's */
    uint32_t rank;         /**< of its process on this GPU */
    uint32_t world_size;   /**< of that job */
    uint32_t levels;       /**< of its agreed directive, as the next two */
    uint32_t full_workers;
    int32_t direction;
} jigsaw_rival_role_t;

/** Rank 0 reports a rival of another rank of its job, as that rank told it in the exchange: the jigsawd of rank 0's node,
 * which decides the job's depths, sees only its own node. */
typedef struct jigsaw_elsewhere {
    uint32_t own_rank; /**< whose rival it is */
    uint32_t job_id;
    uint32_t older;    /**< as in jigsaw_rival_t, and so on */
    uint32_t policy;
    uint64_t generation;
    int32_t phase;
    uint32_t reserved;
    jigsaw_rival_role_t role;
} jigsaw_elsewhere_t;

/** Written by jigsawd. */
typedef struct jigsaw_directive_page {
    uint32_t magic;
    uint32_t version;
    uint32_t compatible;
    uint32_t page_bytes;

    uint64_t heartbeat_ns; /**< stored at least every 100 ms while jigsawd lives */
    uint64_t agent_start;  /**< changes with every start of jigsawd */
    uint8_t reserved0[32];

    /* Gate: offset 64. grant is a futex word. */
    uint32_t gate;  /**< enum jigsaw_gate */
    uint32_t grant; /**< number of the last want that was granted */
    uint8_t reserved1[56];

    /* The wanted directive and what surrounds it, under seq: offset 128. */
    uint32_t seq;
    uint32_t policy;       /**< enum jigsaw_policy */
    uint64_t generation;   /**< 0: jigsawd wants nothing: run full depth */
    uint64_t published_ns; /**< when this generation was written */
    uint64_t seed;         /**< of SHUFFLE */
    int32_t phase;         /**< added to the iteration in role() */
    int32_t direction;     /**< +1 or -1: in which direction roles rotate over the ranks */
    uint32_t levels;       /**< L, 1..JIGSAW_MAX_LEVELS */
    uint32_t full_workers; /**< of TWO_LEVEL, 1..world size */
    uint32_t nrivals;      /**< valid entries of rivals */
    uint32_t reserved2;
    jigsaw_rival_t rivals[JIGSAW_MAX_RIVALS];
    jigsaw_rival_role_t rival_roles[JIGSAW_MAX_RIVALS]; /**< of the same entry of rivals */

    uint8_t reserved3[4096 - 184 - (32 + 24) * 8];
} jigsaw_directive_page_t;

/** Written by the process. */
typedef struct jigsaw_report_page {
    uint32_t magic;
    uint32_t version;
    uint32_t compatible;
    uint32_t page_bytes;
    uint8_t reserved0[48];

    /* Gate: offset 64. */
    uint32_t want;  /**< number of the last turn asked for */
    uint32_t state; /**< enum jigsaw_state */
    uint8_t reserved1[56];

    /* Under seq: offset 128. */
    uint32_t seq;
    uint32_t depth;           /**< of this rank in `iteration` */
    uint64_t iteration;       /**< that the process is in */
    uint64_t turns;           /**< turns taken since attach */
    uint64_t turn_ns;         /**< time held in all turns */
    uint64_t forward_ns;      /**< of the last complete iteration */
    uint64_t backward_ns;     /**< of the last complete iteration, at `last_depth` */
    uint64_t sync_ns;         /**< time from end of compute to the last gradient, last complete iteration */
    uint64_t iteration_ns;    /**< wall time of the last complete iteration */
    uint64_t memory_bytes;    /**< in use on the GPU; 0: unknown */
    uint64_t memory_peak_bytes;
    double loss;              /**< NaN: not reported */
    double progress;          /**< 0..1 of the training run; NaN: not reported */
    uint32_t last_depth;
    uint32_t num_blocks;

    /* The agreed directive: a copy of what all ranks follow now. */
    uint64_t agreed_generation; /**< 0: none yet */
    uint64_t agreed_first_iteration;
    uint64_t agreed_seed;
    uint32_t agreed_policy;
    int32_t agreed_phase;
    int32_t agreed_direction;
    uint32_t agreed_levels;
    uint32_t agreed_full_workers;
    uint32_t min_full_workers; /**< rank 0: the least that the job allows now (learning rate, warm-up, floor) */
    uint32_t warmup_left;      /**< iterations of full-depth warm-up still to come */
    uint32_t reserved2;
    uint32_t depth_of_level[JIGSAW_MAX_LEVELS]; /**< [l-1] is the depth of level l */
    uint64_t block_backward_ns[JIGSAW_MAX_BLOCKS]; /**< [0] is the block nearest the input; 0: not measured */

    uint32_t nelsewhere; /**< rank 0: valid entries of elsewhere, at most one per job */
    uint32_t reserved4;
    jigsaw_elsewhere_t elsewhere[JIGSAW_MAX_RIVALS];

    uint8_t reserved3[4096 - 872 - 56 * 8];
} jigsaw_report_page_t;

JIGSAW_PAGE_ASSERT(sizeof(jigsaw_rival_t) == 32, "layout of jigsaw_rival_t");
JIGSAW_PAGE_ASSERT(sizeof(jigsaw_rival_role_t) == 24, "layout of jigsaw_rival_role_t");
JIGSAW_PAGE_ASSERT(sizeof(jigsaw_elsewhere_t) == 56, "layout of jigsaw_elsewhere_t");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_directive_page_t, heartbeat_ns) == 16, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_directive_page_t, gate) == 64, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_directive_page_t, grant) == 68, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_directive_page_t, seq) == 128, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, want) == 64, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, state) == 68, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, seq) == 128, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, depth) == 132, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, iteration) == 136, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, turns) == 144, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, loss) == 208, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, last_depth) == 224, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, agreed_generation) == 232, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, agreed_policy) == 256, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, depth_of_level) == 288, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, block_backward_ns) == 352, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_directive_page_t, rivals) == 184, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_directive_page_t, rival_roles) == 440, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, nelsewhere) == 864, "layout");
JIGSAW_PAGE_ASSERT(offsetof(jigsaw_report_page_t, elsewhere) == 872, "layout");
JIGSAW_PAGE_ASSERT(sizeof(jigsaw_directive_page_t) == JIGSAW_PAGE_BYTES, "layout");
JIGSAW_PAGE_ASSERT(sizeof(jigsaw_report_page_t) == JIGSAW_PAGE_BYTES, "layout");

#ifdef __cplusplus
}
#endif
#endif
