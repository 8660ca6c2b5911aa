/* SPDX-License-Identifier: Apache-2.0 */
/* A training program without a framework, for the integration tests: computes by spinning, synchronises real buffers
 * through libjigsaw, and knows what the result must be. Gradients of block b at iteration t are the same number on every
 * rank, so the mean over any contributors is that number, and the parameters after n iterations are known exactly:
 * a lost, doubled or mixed-up block shows.
 *
 * usage: toy_train [--iterations N] [--forward-us N] [--backward-us N] [--blocks N] [--metrics FILE] [--fork-loader]
 *                  [--policy NAME] [--hold-at T] [--progress FILE]
 *   --fork-loader    a child that keeps every file descriptor open for the life of the parent and longer
 *   --hold-at T      at iteration T never give the turn back (a job that misbehaves)
 *   --progress FILE  "{rank}" becomes the rank; holds the number of the iteration that is open
 */
#include <errno.h>
#include <inttypes.h>
#include <jigsaw/jigsaw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { kMaxBlocks = 16, kCount = 1000 };

static struct options {
    uint64_t iterations, forward_us, backward_us, hold_at;
    uint32_t blocks;
    const char *metrics, *progress, *policy;
    int fork_loader;
} options = {200, 1000, 1000, UINT64_MAX, 4, NULL, NULL, NULL, 0};

static float gradients[kMaxBlocks][kCount];
static double parameters[kMaxBlocks];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* CPU time, not wall time: with a rival on the same core the work stays the same. */
static void compute(uint64_t us)
{
    struct timespec t;
    uint64_t start, cpu;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    start = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        cpu = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec - start;
    } while (cpu < us * 1000u);
}

static float gradient_of(uint64_t iteration, uint32_t block) { return (float)((iteration * 7 + block * 3) % 101); }

static void fail(const jigsaw_context_t *ctx, const char *what)
{
    fprintf(stderr, "toy_train: %s: %s\n", what, jigsaw_last_error(ctx));
    exit(3);
}

static FILE *open_metrics(const char *pattern, int rank)
{
    char path[4096];
    const char *mark = strstr(pattern, "{rank}");
    if (mark)
        snprintf(path, sizeof path, "%.*s%d%s", (int)(mark - pattern), pattern, rank, mark + 6);
    else
        snprintf(path, sizeof path, "%s", pattern);
    return fopen(path, "w");
}

static void fork_loader(void)
{
    if (fork() == 0) {
        signal(SIGTERM, SIG_IGN);
        sleep(600); /* outlives its parent; Slurm must end it */
        _exit(0);
    }
}

static uint64_t number(const char *name, const char *text)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text ? text : "", &end, 10);
    if (!text || errno || end == text || *end) {
        fprintf(stderr, "toy_train: %s %s: not a number\n", name, text ? text : "(nothing)");
        exit(2);
    }
    return value;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(name, "--fork-loader")) {
            options.fork_loader = 1;
            continue;
        }
        i++;
        if (!strcmp(name, "--iterations"))
            options.iterations = number(name, value);
        else if (!strcmp(name, "--forward-us"))
            options.forward_us = number(name, value);
        else if (!strcmp(name, "--backward-us"))
            options.backward_us = number(name, value);
        else if (!strcmp(name, "--hold-at"))
            options.hold_at = number(name, value);
        else if (!strcmp(name, "--blocks"))
            options.blocks = (uint32_t)number(name, value);
        else if (!strcmp(name, "--metrics"))
            options.metrics = value;
        else if (!strcmp(name, "--progress"))
            options.progress = value;
        else if (!strcmp(name, "--policy"))
            options.policy = value;
        else {
            fprintf(stderr, "toy_train: %s: not an option\n", name);
            exit(2);
        }
    }
    if (options.blocks < 1 || options.blocks > kMaxBlocks) {
        fprintf(stderr, "toy_train: --blocks %u: 1 to %d\n", options.blocks, kMaxBlocks);
        exit(2);
    }
}

static void backward(jigsaw_context_t *ctx, const jigsaw_iteration_t *it)
{
    for (uint32_t done = 0; done < it->depth; done++) {
        uint32_t block = options.blocks - 1 - done;
        compute(options.backward_us / options.blocks);
        for (int i = 0; i < kCount; i++)
            gradients[block][i] = gradient_of(it->iteration, block);
        if (jigsaw_block_ready(ctx, block) != JIGSAW_SUCCESS)
            fail(ctx, "block_ready");
    }
}

static void step(const jigsaw_sync_result_t *result)
{
    for (uint32_t block = 0; block < options.blocks; block++) {
        if (!(result->defined_blocks >> block & 1))
            continue;
        for (int i = 1; i < kCount; i++)
            if (gradients[block][i] != gradients[block][0]) {
                fprintf(stderr, "toy_train: block %u is not one gradient\n", block);
                exit(4);
            }
        parameters[block] += gradients[block][0];
    }
}

/* Blocks nearest the loss are computed by every rank in every iteration; deeper ones by at least one full-depth worker. */
static void check(uint64_t iterations)
{
    for (uint32_t block = 0; block < options.blocks; block++) {
        double want = 0;
        for (uint64_t t = 0; t < iterations; t++)
            want += gradient_of(t, block);
        if (parameters[block] != want) {
            fprintf(stderr, "toy_train: block %u is %g after %" PRIu64 " iterations, must be %g\n", block, parameters[block],
                    iterations, want);
            exit(5);
        }
    }
}

static void note_progress(FILE *file, uint64_t iteration)
{
    if (!file)
        return;
    rewind(file);
    fprintf(file, "%" PRIu64 "\n", iteration);
    fflush(file);
}

static void train(jigsaw_context_t *ctx, FILE *metrics, FILE *progress)
{
    for (uint64_t t = 0; t < options.iterations; t++) {
        jigsaw_iteration_t it = {.size = sizeof it};
        jigsaw_sync_result_t result = {.size = sizeof result};
        if (jigsaw_begin_iteration(ctx, &it) != JIGSAW_SUCCESS)
            fail(ctx, "begin_iteration");
        uint64_t begin = now_ns();
        note_progress(progress, it.iteration);
        compute(options.forward_us);
        backward(ctx, &it);
        if (it.iteration == options.hold_at)
            for (;;)
                compute(100000);
        if (t + 1 == options.iterations)
            jigsaw_leave(ctx);
        if (jigsaw_end_compute(ctx) != JIGSAW_SUCCESS)
            fail(ctx, "end_compute");
        uint64_t end = now_ns();
        if (jigsaw_sync(ctx, &result, 60000) != JIGSAW_SUCCESS)
            fail(ctx, "sync");
        step(&result);
        if (metrics) {
            fprintf(metrics,
                    "{\"iteration\":%" PRIu64 ",\"t_ns\":%" PRIu64 ",\"depth\":%u,\"num_blocks\":%u,\"generation\":%" PRIu64
                    ",\"turn_begin_ns\":%" PRIu64 ",\"turn_end_ns\":%" PRIu64 "}\n",
                    it.iteration, now_ns(), it.depth, it.num_blocks, it.generation, begin, end);
            fflush(metrics);
        }
    }
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    jigsaw_block_t blocks[kMaxBlocks] = {{0}};
    jigsaw_config_t config = JIGSAW_CONFIG_INIT;
    jigsaw_context_t *ctx = NULL;
    for (uint32_t b = 0; b < options.blocks; b++)
        blocks[b] = (jigsaw_block_t){gradients[b], kCount, JIGSAW_FLOAT32, 0};
    config.num_blocks = options.blocks;
    config.blocks = blocks;
    config.policy = options.policy;
    if (jigsaw_attach(&ctx, &config) != JIGSAW_SUCCESS)
        fail(NULL, "attach");
    if (options.fork_loader)
        fork_loader();
    FILE *metrics = options.metrics ? open_metrics(options.metrics, jigsaw_rank(ctx)) : NULL;
    FILE *progress = options.progress ? open_metrics(options.progress, jigsaw_rank(ctx)) : NULL;
    train(ctx, metrics, progress);
    check(options.iterations);
    printf("toy_train: rank %d: %" PRIu64 " iterations, parameters are right\n", jigsaw_rank(ctx), options.iterations);
    jigsaw_detach(ctx);
    return 0;
}
