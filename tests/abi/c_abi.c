/* SPDX-License-Identifier: Apache-2.0 */
/* libjigsaw seen from C: the header compiles as C11, the list of results, argument checks, one rank's run. Speaks TAP. */
#define _GNU_SOURCE /* unsetenv */
#include <jigsaw/jigsaw.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number, failures;

static void ok(int good, const char *name)
{
    if (!good)
        ++failures;
    printf("%sok %d - %s\n", good ? "" : "not ", ++number, name);
}

/* Asks for the text itself: arguments are evaluated in any order. */
static void ok_refused(jigsaw_result_t result, jigsaw_result_t wanted, const jigsaw_context_t *ctx, const char *says, const char *name)
{
    const char *text = jigsaw_last_error(ctx);
    int good = result == wanted && strstr(text, says) != NULL;
    ok(good, name);
    if (!good)
        printf("# result %d, \"%s\"\n", (int)result, text);
}

static void results(void)
{
    static const struct {
        jigsaw_result_t result;
        int number;
        const char *text;
    } rows[] = {
#define ROW(name, number, text) {JIGSAW_##name, number, text},
        JIGSAW_RESULT_MAP(ROW)
#undef ROW
    };
    /* What programs were compiled with never changes. */
    static const int fixed[] = {JIGSAW_SUCCESS, JIGSAW_INVALID_ARGUMENT, JIGSAW_INVALID_STATE, JIGSAW_SYSTEM_ERROR, JIGSAW_PEER_LEFT,
                                JIGSAW_TIMEOUT, JIGSAW_DISAGREE, JIGSAW_NO_BACKEND, JIGSAW_INTERRUPTED, JIGSAW_INTERNAL_ERROR};
    size_t i, same = 0, stable = 0;
    for (i = 0; i < sizeof rows / sizeof *rows; ++i)
        same += (int)rows[i].result == rows[i].number && strcmp(jigsaw_result_string(rows[i].result), rows[i].text) == 0;
    for (i = 0; i < sizeof fixed / sizeof *fixed; ++i)
        stable += fixed[i] == (int)i;
    ok(same == sizeof rows / sizeof *rows, "jigsaw_result_string tells every result of the list");
    ok(stable == 10, "numbers of results are what they were");
    ok(strcmp(jigsaw_result_string((jigsaw_result_t)77), "not a result of jigsaw") == 0, "an unknown result has a text too");
}

static void layout(void)
{
    ok(sizeof(jigsaw_block_t) == 24 && offsetof(jigsaw_block_t, type) == 16, "layout of jigsaw_block_t");
    ok(offsetof(jigsaw_config_t, blocks) == 16 && offsetof(jigsaw_config_t, policy) == 48 && offsetof(jigsaw_config_t, cuda_device) == 160 && sizeof(jigsaw_config_t) == 168,
       "layout of jigsaw_config_t");
    ok(sizeof(jigsaw_iteration_t) == 32, "layout of jigsaw_iteration_t");
    ok(offsetof(jigsaw_sync_result_t, sync_ns) == 32, "layout of jigsaw_sync_result_t");
    ok(sizeof(jigsaw_report_t) == 48 && sizeof(jigsaw_stats_t) == 56, "layout of jigsaw_report_t and jigsaw_stats_t");
}

static void null_contexts(void)
{
    jigsaw_context_t *ctx = (jigsaw_context_t *)&number;
    jigsaw_iteration_t iteration = {.size = sizeof iteration};
    double value = 0;
    ok(jigsaw_detach(NULL) == JIGSAW_SUCCESS, "jigsaw_detach takes NULL");
    ok_refused(jigsaw_attach(NULL, NULL), JIGSAW_INVALID_ARGUMENT, NULL, "ret_ctx is NULL", "jigsaw_attach without an output");
    ok_refused(jigsaw_attach(&ctx, NULL), JIGSAW_INVALID_ARGUMENT, NULL, "config is NULL", "jigsaw_attach without a config");
    ok(ctx == (jigsaw_context_t *)&number, "a failed attach leaves the output alone");
    ok_refused(jigsaw_begin_iteration(NULL, &iteration), JIGSAW_INVALID_ARGUMENT, NULL, "ctx is NULL", "begin without a context");
    ok(jigsaw_block_ready(NULL, 0) == JIGSAW_INVALID_ARGUMENT && jigsaw_end_forward(NULL) == JIGSAW_INVALID_ARGUMENT &&
           jigsaw_end_compute(NULL) == JIGSAW_INVALID_ARGUMENT && jigsaw_sync(NULL, NULL, 1) == JIGSAW_INVALID_ARGUMENT &&
           jigsaw_turn_begin(NULL) == JIGSAW_INVALID_ARGUMENT && jigsaw_turn_end(NULL) == JIGSAW_INVALID_ARGUMENT &&
           jigsaw_yield_turn(NULL) == JIGSAW_INVALID_ARGUMENT && jigsaw_report(NULL, NULL) == JIGSAW_INVALID_ARGUMENT &&
           jigsaw_leave(NULL) == JIGSAW_INVALID_ARGUMENT && jigsaw_broadcast(NULL, &value, 8, 0) == JIGSAW_INVALID_ARGUMENT &&
           jigsaw_mean(NULL, &value, 1) == JIGSAW_INVALID_ARGUMENT && jigsaw_get_stats(NULL, NULL) == JIGSAW_INVALID_ARGUMENT &&
           jigsaw_set_blocks(NULL, NULL, 1) == JIGSAW_INVALID_ARGUMENT,
       "every call refuses a NULL context");
    ok(jigsaw_rank(NULL) == -1 && jigsaw_world_size(NULL) == -1, "no context has no rank");
    ok(jigsaw_thread_world_create(0) == NULL, "a world of no rank is refused");
    jigsaw_thread_world_destroy(NULL);
}

static void one_rank(void)
{
    static float first[3], last[5];
    const jigsaw_block_t blocks[] = {{first, 3, JIGSAW_FLOAT32, 0}, {last, 5, JIGSAW_FLOAT32, 0}};
    jigsaw_config_t config = JIGSAW_CONFIG_INIT;
    jigsaw_context_t *ctx = NULL;
    jigsaw_iteration_t now = {.size = sizeof now};
    /* A caller of the first version: its structure ends before sync_ns. */
    jigsaw_sync_result_t result = {.size = offsetof(jigsaw_sync_result_t, sync_ns), .sync_ns = 12345};
    jigsaw_report_t report = JIGSAW_REPORT_INIT;
    jigsaw_stats_t stats = {.size = sizeof stats};
    double values[2] = {2, 3};
    int t, good = 1;

    config.num_blocks = 2;
    config.blocks = blocks;
    config.rank = 0;
    config.world_size = 1;
    ok(jigsaw_attach(&ctx, &config) == JIGSAW_SUCCESS && ctx != NULL, "one rank attaches without agent, peers or back end");
    if (ctx == NULL) {
        printf("# %s\n", jigsaw_last_error(NULL));
        return;
    }
    ok(jigsaw_rank(ctx) == 0 && jigsaw_world_size(ctx) == 1, "rank and world size");
    ok_refused(jigsaw_set_blocks(ctx, blocks, 0), JIGSAW_INVALID_ARGUMENT, ctx, "jigsaw_set_blocks: num_blocks is 0", "no block");
    ok_refused(jigsaw_set_blocks(ctx, NULL, 2), JIGSAW_INVALID_ARGUMENT, ctx, "blocks is NULL", "blocks that are not there");
    ok(jigsaw_set_blocks(ctx, blocks, 1) == JIGSAW_SUCCESS && jigsaw_set_blocks(ctx, blocks, 2) == JIGSAW_SUCCESS,
       "blocks are given anew");
    now.size = 4;
    ok_refused(jigsaw_begin_iteration(ctx, &now), JIGSAW_INVALID_ARGUMENT, ctx, "size is 4", "a structure without its size");
    now.size = sizeof now;
    ok_refused(jigsaw_sync(ctx, &result, 1000), JIGSAW_INVALID_STATE, ctx, "jigsaw_begin_iteration", "sync before begin");
    for (t = 0; t < 5; ++t) {
        good = good && jigsaw_begin_iteration(ctx, &now) == JIGSAW_SUCCESS && now.iteration == (uint64_t)t && now.depth == 2;
        good = good && jigsaw_end_forward(ctx) == JIGSAW_SUCCESS;
        last[0] = (float)t;
        good = good && jigsaw_block_ready(ctx, 1) == JIGSAW_SUCCESS;
        first[0] = (float)t;
        good = good && jigsaw_block_ready(ctx, 0) == JIGSAW_SUCCESS && jigsaw_end_compute(ctx) == JIGSAW_SUCCESS;
        good = good && jigsaw_sync(ctx, &result, 1000) == JIGSAW_SUCCESS && result.iteration == (uint64_t)t && result.defined_blocks == 3;
        report.loss = 1.0 / (t + 1);
        good = good && first[0] == (float)t && last[0] == (float)t && jigsaw_report(ctx, &report) == JIGSAW_SUCCESS;
    }
    ok(good, "five iterations");
    ok(jigsaw_begin_iteration(ctx, &now) == JIGSAW_SUCCESS, "a sixth");
    ok_refused(jigsaw_set_blocks(ctx, blocks, 2), JIGSAW_INVALID_STATE, ctx, "iteration 5 is open", "no blocks inside an iteration");
    ok(jigsaw_block_ready(ctx, 1) == JIGSAW_SUCCESS && jigsaw_block_ready(ctx, 0) == JIGSAW_SUCCESS &&
           jigsaw_end_compute(ctx) == JIGSAW_SUCCESS && jigsaw_sync(ctx, &result, 1000) == JIGSAW_SUCCESS,
       "its end");
    ok(result.sync_ns == 12345, "nothing is written beyond the size that the caller knows");
    ok(jigsaw_mean(ctx, values, 2) == JIGSAW_SUCCESS && values[0] == 2 && values[1] == 3, "the mean over one rank");
    ok(jigsaw_broadcast(ctx, values, sizeof values, 0) == JIGSAW_SUCCESS, "a broadcast to nobody");
    ok(jigsaw_turn_begin(ctx) == JIGSAW_SUCCESS && jigsaw_turn_end(ctx) == JIGSAW_SUCCESS && jigsaw_yield_turn(ctx) == JIGSAW_SUCCESS,
       "a turn outside iterations");
    ok(jigsaw_get_stats(ctx, &stats) == JIGSAW_SUCCESS && stats.iterations == 6 && stats.attached == 0 && stats.gpu_index == -1 &&
           stats.mean_depth_fraction == 1.0,
       "statistics");
    ok(jigsaw_leave(ctx) == JIGSAW_SUCCESS && jigsaw_detach(ctx) == JIGSAW_SUCCESS, "leave and detach");
}

int main(void)
{
    char version[32];
    /* What surrounds the test must not decide its result. */
    unsetenv("JIGSAW_SOCKET");
    snprintf(version, sizeof version, "%d.%d.%d", JIGSAW_VERSION_MAJOR, JIGSAW_VERSION_MINOR, JIGSAW_VERSION_PATCH);
    ok(strcmp(jigsaw_version(), version) == 0, "the library has the header's version");
    results();
    layout();
    null_contexts();
    one_rank();
    printf("1..%d\n", number);
    return failures != 0;
}
