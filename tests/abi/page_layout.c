/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of the shared pages, field by field, as C sees it. jigsawd, libjigsaw and other people's readers may be of
 * different builds: these numbers never change. A new field adds a row; a row that no longer holds is a break of the
 * protocol. Built as C and, by page_layout_cxx.cpp, as C++. */
#include <jigsaw/page.h>

#include <stdio.h>

struct row {
    const char *field;
    size_t offset, bytes, expected_offset, expected_bytes;
};

/* clang-format off */
#define ROW(type, field, offset, bytes) \
    {#type "." #field, offsetof(type, field), sizeof(((type *)0)->field), offset, bytes}
/* clang-format on */

static const struct row rows[] = {
    ROW(jigsaw_rival_t, job_id, 0, 4),
    ROW(jigsaw_rival_t, older, 4, 4),
    ROW(jigsaw_rival_t, generation, 8, 8),
    ROW(jigsaw_rival_t, iteration, 16, 8),
    ROW(jigsaw_rival_t, phase, 24, 4),
    ROW(jigsaw_rival_t, policy, 28, 4),

    ROW(jigsaw_rival_role_t, offset, 0, 4),
    ROW(jigsaw_rival_role_t, rank, 4, 4),
    ROW(jigsaw_rival_role_t, world_size, 8, 4),
    ROW(jigsaw_rival_role_t, levels, 12, 4),
    ROW(jigsaw_rival_role_t, full_workers, 16, 4),
    ROW(jigsaw_rival_role_t, direction, 20, 4),

    ROW(jigsaw_elsewhere_t, own_rank, 0, 4),
    ROW(jigsaw_elsewhere_t, job_id, 4, 4),
    ROW(jigsaw_elsewhere_t, older, 8, 4),
    ROW(jigsaw_elsewhere_t, policy, 12, 4),
    ROW(jigsaw_elsewhere_t, generation, 16, 8),
    ROW(jigsaw_elsewhere_t, phase, 24, 4),
    ROW(jigsaw_elsewhere_t, role, 32, 24),

    ROW(jigsaw_directive_page_t, magic, 0, 4),
    ROW(jigsaw_directive_page_t, version, 4, 4),
    ROW(jigsaw_directive_page_t, compatible, 8, 4),
    ROW(jigsaw_directive_page_t, page_bytes, 12, 4),
    ROW(jigsaw_directive_page_t, heartbeat_ns, 16, 8),
    ROW(jigsaw_directive_page_t, agent_start, 24, 8),
    ROW(jigsaw_directive_page_t, gate, 64, 4),
    ROW(jigsaw_directive_page_t, grant, 68, 4),
    ROW(jigsaw_directive_page_t, seq, 128, 4),
    ROW(jigsaw_directive_page_t, policy, 132, 4),
    ROW(jigsaw_directive_page_t, generation, 136, 8),
    ROW(jigsaw_directive_page_t, published_ns, 144, 8),
    ROW(jigsaw_directive_page_t, seed, 152, 8),
    ROW(jigsaw_directive_page_t, phase, 160, 4),
    ROW(jigsaw_directive_page_t, direction, 164, 4),
    ROW(jigsaw_directive_page_t, levels, 168, 4),
    ROW(jigsaw_directive_page_t, full_workers, 172, 4),
    ROW(jigsaw_directive_page_t, nrivals, 176, 4),
    ROW(jigsaw_directive_page_t, rivals, 184, 8 * 32),
    ROW(jigsaw_directive_page_t, rival_roles, 440, 8 * 24),

    ROW(jigsaw_report_page_t, magic, 0, 4),
    ROW(jigsaw_report_page_t, version, 4, 4),
    ROW(jigsaw_report_page_t, compatible, 8, 4),
    ROW(jigsaw_report_page_t, page_bytes, 12, 4),
    ROW(jigsaw_report_page_t, want, 64, 4),
    ROW(jigsaw_report_page_t, state, 68, 4),
    ROW(jigsaw_report_page_t, seq, 128, 4),
    ROW(jigsaw_report_page_t, depth, 132, 4),
    ROW(jigsaw_report_page_t, iteration, 136, 8),
    ROW(jigsaw_report_page_t, turns, 144, 8),
    ROW(jigsaw_report_page_t, turn_ns, 152, 8),
    ROW(jigsaw_report_page_t, forward_ns, 160, 8),
    ROW(jigsaw_report_page_t, backward_ns, 168, 8),
    ROW(jigsaw_report_page_t, sync_ns, 176, 8),
    ROW(jigsaw_report_page_t, iteration_ns, 184, 8),
    ROW(jigsaw_report_page_t, memory_bytes, 192, 8),
    ROW(jigsaw_report_page_t, memory_peak_bytes, 200, 8),
    ROW(jigsaw_report_page_t, loss, 208, 8),
    ROW(jigsaw_report_page_t, progress, 216, 8),
    ROW(jigsaw_report_page_t, last_depth, 224, 4),
    ROW(jigsaw_report_page_t, num_blocks, 228, 4),
    ROW(jigsaw_report_page_t, agreed_generation, 232, 8),
    ROW(jigsaw_report_page_t, agreed_first_iteration, 240, 8),
    ROW(jigsaw_report_page_t, agreed_seed, 248, 8),
    ROW(jigsaw_report_page_t, agreed_policy, 256, 4),
    ROW(jigsaw_report_page_t, agreed_phase, 260, 4),
    ROW(jigsaw_report_page_t, agreed_direction, 264, 4),
    ROW(jigsaw_report_page_t, agreed_levels, 268, 4),
    ROW(jigsaw_report_page_t, agreed_full_workers, 272, 4),
    ROW(jigsaw_report_page_t, min_full_workers, 276, 4),
    ROW(jigsaw_report_page_t, warmup_left, 280, 4),
    ROW(jigsaw_report_page_t, depth_of_level, 288, 16 * 4),
    ROW(jigsaw_report_page_t, block_backward_ns, 352, 64 * 8),
    ROW(jigsaw_report_page_t, nelsewhere, 864, 4),
    ROW(jigsaw_report_page_t, elsewhere, 872, 8 * 56),
};

static const struct {
    const char *name;
    unsigned long value, expected;
} numbers[] = {
    {"JIGSAW_PAGE_MAGIC_DIRECTIVE", JIGSAW_PAGE_MAGIC_DIRECTIVE, 0x4a534449},
    {"JIGSAW_PAGE_MAGIC_REPORT", JIGSAW_PAGE_MAGIC_REPORT, 0x4a535250},
    {"JIGSAW_GATE_OPEN", JIGSAW_GATE_OPEN, 0},
    {"JIGSAW_GATE_CLOSED", JIGSAW_GATE_CLOSED, 1},
    {"JIGSAW_STATE_IDLE", JIGSAW_STATE_IDLE, 0},
    {"JIGSAW_STATE_RUNNING", JIGSAW_STATE_RUNNING, 1},
    {"JIGSAW_STATE_WAITING", JIGSAW_STATE_WAITING, 2},
    {"JIGSAW_POLICY_FULL", JIGSAW_POLICY_FULL, 0},
    {"JIGSAW_POLICY_TWO_LEVEL", JIGSAW_POLICY_TWO_LEVEL, 1},
    {"JIGSAW_POLICY_ROTATE", JIGSAW_POLICY_ROTATE, 2},
    {"JIGSAW_POLICY_SHUFFLE", JIGSAW_POLICY_SHUFFLE, 3},
    {"JIGSAW_POLICY_FIXED", JIGSAW_POLICY_FIXED, 4},
    {"JIGSAW_POLICY_UNIFORM", JIGSAW_POLICY_UNIFORM, 5},
    {"JIGSAW_UNIFORM_PERIOD", JIGSAW_UNIFORM_PERIOD, 8},
    {"sizeof(jigsaw_rival_t)", sizeof(jigsaw_rival_t), 32},
    {"sizeof(jigsaw_directive_page_t)", sizeof(jigsaw_directive_page_t), 4096},
    {"sizeof(jigsaw_report_page_t)", sizeof(jigsaw_report_page_t), 4096},
};

int main(void)
{
    const size_t nrows = sizeof rows / sizeof rows[0], nnumbers = sizeof numbers / sizeof numbers[0];
    size_t bad = 0, i;
    printf("1..%zu\n", nrows + nnumbers);
    for (i = 0; i < nrows; ++i) {
        const int good = rows[i].offset == rows[i].expected_offset && rows[i].bytes == rows[i].expected_bytes;
        bad += !good;
        printf("%s %zu - %s at %zu, %zu bytes (%zu, %zu)\n", good ? "ok" : "not ok", i + 1, rows[i].field,
               rows[i].expected_offset, rows[i].expected_bytes, rows[i].offset, rows[i].bytes);
    }
    for (i = 0; i < nnumbers; ++i) {
        const int good = numbers[i].value == numbers[i].expected;
        bad += !good;
        printf("%s %zu - %s is %lu (%lu)\n", good ? "ok" : "not ok", nrows + i + 1, numbers[i].name,
               numbers[i].expected, numbers[i].value);
    }
    return bad != 0;
}
