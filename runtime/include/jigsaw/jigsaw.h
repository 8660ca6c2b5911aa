/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * libjigsaw: iteration-level time slicing and Structured Partial Backpropagation for a training process.
 *
 * Order of arguments everywhere: context, outputs (ret_x, untouched on failure), inputs; a length follows its array.
 * One iteration, on every rank:
 *
 *     jigsaw_begin_iteration(ctx, &it);          // turn held; it.depth blocks from the loss are to be computed
 *     forward, backward;  jigsaw_block_ready(ctx, b) as block b's gradient buffer is complete, last block first
 *     jigsaw_end_compute(ctx);                   // turn given back
 *     jigsaw_sync(ctx, &result, timeout_ms);     // every block's mean gradient in place; next turn held
 *     optimizer step                             // identical on every rank; skip blocks with contributors == 0
 *
 * Without jigsawd everything works: turns pass at once, depth is full or follows the policy given in the
 * configuration. Method: Structured Partial Backpropagation, arXiv:2111.10672; docs/paper-map.md says what is ours.
 */
#ifndef JIGSAW_JIGSAW_H
#define JIGSAW_JIGSAW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define JIGSAW_VERSION_MAJOR 0
#define JIGSAW_VERSION_MINOR 1
#define JIGSAW_VERSION_PATCH 0

/** One list makes the enum, the texts, the man page table and the test. Numbers never change meaning. */
#define JIGSAW_RESULT_MAP(X)                                                                                           \
    X(SUCCESS, 0, "success")                                                                                           \
    X(INVALID_ARGUMENT, 1, "an argument is out of its range")                                                          \
    X(INVALID_STATE, 2, "the call does not fit the state of the context")                                              \
    X(SYSTEM_ERROR, 3, "a system call failed")                                                                         \
    X(PEER_LEFT, 4, "another rank ended")                                                                              \
    X(TIMEOUT, 5, "another rank did not answer in time")                                                               \
    X(DISAGREE, 6, "ranks do not agree on the plan")                                                                   \
    X(NO_BACKEND, 7, "the communication back end is not in this build or not on this machine")                         \
    X(INTERRUPTED, 8, "a callback asked to stop waiting")                                                              \
    X(INTERNAL_ERROR, 9, "a defect of jigsaw")

typedef enum jigsaw_result {
#define JIGSAW_RESULT_ENUM(name, number, text) JIGSAW_##name = number,
    JIGSAW_RESULT_MAP(JIGSAW_RESULT_ENUM)
#undef JIGSAW_RESULT_ENUM
} jigsaw_result_t;

typedef enum jigsaw_datatype { JIGSAW_FLOAT32 = 0, JIGSAW_FLOAT64 = 1, JIGSAW_BFLOAT16 = 2 } jigsaw_datatype_t;

/** One process's part in one job. Not thread-safe except where a function says so. */
typedef struct jigsaw_context jigsaw_context_t;

/** A block's flat gradient buffer. Borrowed from attach to detach. Shape: data[count]; with backend "nccl" in the memory
 * of the rank's GPU, else on the host. */
typedef struct jigsaw_block {
    void *data;
    size_t count;    /**< elements */
    uint32_t type;   /**< jigsaw_datatype_t */
    uint32_t reserved;
} jigsaw_block_t;

typedef void (*jigsaw_log_fn)(void *arg, const char *line);
/** Called about every 100 ms inside waits; 0 goes on, anything else ends the wait with JIGSAW_INTERRUPTED. */
typedef int (*jigsaw_wake_fn)(void *arg);

/** Start from JIGSAW_CONFIG_INIT; new fields are only added at the end. */
typedef struct jigsaw_config {
    size_t size;            /**< sizeof(jigsaw_config_t) of the caller's header */
    uint32_t num_blocks;    /**< 1..64 */
    uint32_t reserved;
    const jigsaw_block_t *blocks; /**< [num_blocks], 0 nearest the input */
    int32_t rank;           /**< -1: RANK, else SLURM_PROCID, else 0 */
    int32_t world_size;     /**< -1: WORLD_SIZE, else SLURM_NTASKS, else 1 */
    int32_t local_rank;     /**< -1: LOCAL_RANK, else SLURM_LOCALID, else 0 */
    uint32_t timeout_ms;    /**< of collectives and of rendezvous; 0: 60000 */
    const char *backend;    /**< NULL: "gloo"; "nccl": blocks on GPUs, libnccl and libcudart opened at run time;
                                 "threads" with thread_world for tests */
    const char *policy;     /**< used while no agent directs: NULL or "full", "two-level", "rotate", "shuffle", "fixed",
                                 "uniform" */
    uint32_t levels;        /**< 0: 2 for two-level and uniform, else min(world_size, num_blocks) */
    uint32_t full_workers;  /**< of two-level: ranks, 0: half of them, at least 1; of uniform: of 8 iterations, 0: 4 */
    uint64_t warmup_iterations; /**< run at full depth first, whatever is directed */
    uint64_t seed;          /**< of "shuffle" */
    uint64_t first_iteration; /**< resume: number of the first iteration */
    double min_depth_fraction; /**< floor of the mean depth fraction, by backward time; 0: none */
    const char *sync_strategy; /**< NULL or "default", "scatter-gather", "chain", "full" */
    const char *directive_log; /**< file that every agreed directive is appended to (rank 0); NULL: none */
    const char *replay_log;    /**< follow this file instead of the agent; NULL: none */
    void *thread_world;     /**< from jigsaw_thread_world_create(), with backend "threads", or for the host side of "nccl" */
    jigsaw_log_fn log;      /**< NULL: stderr */
    void *log_arg;
    jigsaw_wake_fn wake;    /**< NULL: none */
    void *wake_arg;
    int32_t cuda_device;    /**< with backend "nccl": -1: the calling thread's current device */
    uint32_t reserved2;
} jigsaw_config_t;

#ifdef __cplusplus
#define JIGSAW_CONFIG_INIT {sizeof(jigsaw_config_t), 0, 0, nullptr, -1, -1, -1, 0, nullptr, nullptr, 0, 0, 0, 0, 0, 0.0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, -1, 0}
#else
#define JIGSAW_CONFIG_INIT {sizeof(jigsaw_config_t), 0, 0, NULL, -1, -1, -1, 0, NULL, NULL, 0, 0, 0, 0, 0, 0.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, 0}
#endif

/** Join the job: rendezvous with all ranks, attach to jigsawd if JIGSAW_SOCKET is set, take the first turn.
 * Returns: JIGSAW_INVALID_ARGUMENT, JIGSAW_TIMEOUT, JIGSAW_PEER_LEFT, JIGSAW_NO_BACKEND; text by jigsaw_last_error(NULL).
 * Ranks: all call it. A missing jigsawd is one warning, not an error. */
jigsaw_result_t jigsaw_attach(jigsaw_context_t **ret_ctx, const jigsaw_config_t *config);

/** Leave. NULL is fine. When all ranks leave after the same iteration the end is clean; else the others get
 * JIGSAW_PEER_LEFT naming this rank. Frees ctx whatever it returns. */
jigsaw_result_t jigsaw_detach(jigsaw_context_t *ctx);

/** Give the blocks anew, between iterations, for callers that learn them by running the model: attach with all parameters as one
 * block, which follows no directive, and give the blocks when their order and costs are known. `blocks` is copied, the buffers
 * are borrowed until detach. policy and levels of the configuration apply to the new number of blocks; the next two
 * iterations run at full depth, as the first two of a run.
 * Returns: JIGSAW_INVALID_STATE once a directive was announced or inside an iteration; JIGSAW_INVALID_ARGUMENT also with
 * backend "nccl" and with replay_log, which need their blocks at attach.
 * Ranks: all call it after the same iteration, with equally many elements in each block. */
jigsaw_result_t jigsaw_set_blocks(jigsaw_context_t *ctx, const jigsaw_block_t *blocks, uint32_t num_blocks);

typedef struct jigsaw_iteration {
    size_t size;          /**< sizeof(jigsaw_iteration_t), set by the caller */
    uint64_t iteration;   /**< strictly increasing */
    uint32_t depth;       /**< blocks from the loss to compute on this rank, 1..num_blocks */
    uint32_t num_blocks;
    uint64_t generation;  /**< of the directive in force; 0: nobody directs */
} jigsaw_iteration_t;

/** With backend "nccl": the stream (cudaStream_t; NULL: the default stream) on which this rank computes from now on.
 * jigsaw_block_ready, jigsaw_end_forward and every giving back of a turn mean what that stream holds when they are called:
 * nothing waits on the host. Elsewhere it does nothing. Threads: as jigsaw_block_ready. */
jigsaw_result_t jigsaw_set_stream(jigsaw_context_t *ctx, void *cuda_stream);

/** Open the next iteration: returns with the turn held and this rank's agreed depth. */
jigsaw_result_t jigsaw_begin_iteration(jigsaw_context_t *ctx, jigsaw_iteration_t *ret_iteration);

/** Block `block`'s gradient buffer is complete: its sync may start. Never blocks. Threads: any one at a time. */
jigsaw_result_t jigsaw_block_ready(jigsaw_context_t *ctx, uint32_t block);

/** Forward ended (optional: separates forward from backward time in reports). */
jigsaw_result_t jigsaw_end_forward(jigsaw_context_t *ctx);

/** Compute of this iteration ended on this rank: the turn goes back. Blocks of the depth not yet ready are an error. */
jigsaw_result_t jigsaw_end_compute(jigsaw_context_t *ctx);

typedef struct jigsaw_sync_result {
    size_t size;             /**< sizeof(jigsaw_sync_result_t), set by the caller */
    uint64_t iteration;      /**< just finished */
    uint64_t defined_blocks; /**< bit b: block b has a gradient (at least one contributor) */
    uint32_t last;           /**< 1: all ranks announced that they leave */
    uint32_t reserved;
    uint64_t sync_ns;        /**< from end_compute to the last gradient */
    uint64_t turn_wait_ns;   /**< waited for the next turn after that */
} jigsaw_sync_result_t;

/** Wait, without a turn, until every block's gradient is the mean over its contributors; then take the next turn. */
jigsaw_result_t jigsaw_sync(jigsaw_context_t *ctx, jigsaw_sync_result_t *ret_result, uint32_t timeout_ms);

/** The optimizer step after the iteration last synchronised is skipped on this rank (non-finite gradients). All ranks hold
 * the same bits, so each decides alike without a message; the next exchange compares, and JIGSAW_DISAGREE names who skipped
 * and who did not. Call between jigsaw_sync and jigsaw_begin_iteration. */
jigsaw_result_t jigsaw_skip_step(jigsaw_context_t *ctx);

/** A turn with no iteration (evaluation, model upload). Nesting is an error. */
jigsaw_result_t jigsaw_turn_begin(jigsaw_context_t *ctx);
jigsaw_result_t jigsaw_turn_end(jigsaw_context_t *ctx);
/** Before waiting for another rank inside a turn (a collective of the user's own): give the turn back if held. */
jigsaw_result_t jigsaw_yield_turn(jigsaw_context_t *ctx);

typedef struct jigsaw_report {
    size_t size;
    double loss;                /**< NaN: not known */
    double progress;            /**< 0..1 of the run; NaN: not known */
    double lr_over_peak;        /**< learning rate over its peak; NaN: not known. Drives the least number of full workers */
    uint64_t memory_bytes;      /**< 0: not known */
    uint64_t memory_peak_bytes; /**< 0: not known */
} jigsaw_report_t;
#ifdef __cplusplus
#define JIGSAW_REPORT_INIT {sizeof(jigsaw_report_t), __builtin_nan(""), __builtin_nan(""), __builtin_nan(""), 0, 0}
#else
#define JIGSAW_REPORT_INIT {sizeof(jigsaw_report_t), __builtin_nan(""), __builtin_nan(""), __builtin_nan(""), 0, 0}
#endif

/** Tell jigsawd (and the agreement) how training goes; cheap, once per iteration, between sync and begin. */
jigsaw_result_t jigsaw_report(jigsaw_context_t *ctx, const jigsaw_report_t *report);

/** This rank ends after the iteration that is open or was last finished (call before jigsaw_end_compute to be in time). */
jigsaw_result_t jigsaw_leave(jigsaw_context_t *ctx);

/** Copy data[bytes], host memory, of rank `root` to all ranks. Gives the turn back first. */
jigsaw_result_t jigsaw_broadcast(jigsaw_context_t *ctx, void *data, size_t bytes, uint32_t root);
/** Mean of data[count] (float64) over all ranks, summed in rank order: same bits everywhere. Gives the turn back first. */
jigsaw_result_t jigsaw_mean(jigsaw_context_t *ctx, double *data, size_t count);

int32_t jigsaw_rank(const jigsaw_context_t *ctx);
int32_t jigsaw_world_size(const jigsaw_context_t *ctx);

/** What the context is and did, for logs and tests. */
typedef struct jigsaw_stats {
    size_t size;
    uint64_t iterations, turns, turn_ns, payload_bytes_sent;
    double mean_depth_fraction; /**< of this rank, by measured backward time, since attach */
    uint32_t attached;          /**< 1: jigsawd gives turns now */
    int32_t gpu_index;          /**< on the node; -1: not known */
} jigsaw_stats_t;
jigsaw_result_t jigsaw_get_stats(const jigsaw_context_t *ctx, jigsaw_stats_t *ret_stats);

/** One line about the last failure of ctx, or, with NULL, of this thread. Valid until the next call. */
const char *jigsaw_last_error(const jigsaw_context_t *ctx);
const char *jigsaw_result_string(jigsaw_result_t result);
const char *jigsaw_version(void);

/** Ranks as threads of one process, for tests: one world shared by `size` attach() calls from `size` threads. */
void *jigsaw_thread_world_create(uint32_t size);
void jigsaw_thread_world_destroy(void *world);

#ifdef __cplusplus
}
#endif
#endif
