// SPDX-License-Identifier: Apache-2.0
// The C ABI: argument checks that need no session, the exception fence, error texts.
// Everything is compiled with hidden symbols; the functions of this header are the exception.
#pragma GCC visibility push(default)
#include <jigsaw/jigsaw.h>
#pragma GCC visibility pop

#include "runtime/capi/session.hpp"
#include "runtime/collective/error.hpp"
#include "runtime/collective/threads.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>

#define JIGSAW_STRING2(x) #x
#define JIGSAW_STRING(x) JIGSAW_STRING2(x)

using jigsaw::Error;
using jigsaw::capi::Session;

struct jigsaw_context {
    explicit jigsaw_context(jigsaw::capi::Settings settings) : session(std::move(settings)) {}
    Session session;
    std::string last_error;
};

namespace {

thread_local std::string thread_error;

/// Errors after which ranks can no longer be in step.
bool ends_session(jigsaw_result_t code)
{
    switch (code) {
    case JIGSAW_INVALID_ARGUMENT:
    case JIGSAW_INVALID_STATE:
    case JIGSAW_INTERRUPTED:
    case JIGSAW_SUCCESS:
        return false;
    default:
        return true;
    }
}

jigsaw_result_t note(jigsaw_context_t *ctx, jigsaw_result_t code, const char *text)
{
    try {
        thread_error = text;
        if (ctx != nullptr) {
            ctx->last_error = text;
            if (ends_session(code))
                ctx->session.poison(text);
        }
    } catch (...) {
        // Out of memory while saying so: the code has to do.
    }
    return code;
}

/// The one fence: no exception leaves the library.
template <typename Body> jigsaw_result_t guard(jigsaw_context_t *ctx, Body body)
{
    try {
        body();
        return JIGSAW_SUCCESS;
    } catch (const Error &error) {
        return note(ctx, error.code(), error.what());
    } catch (const std::system_error &error) {
        return note(ctx, JIGSAW_SYSTEM_ERROR, error.what());
    } catch (const std::bad_alloc &) {
        return note(ctx, JIGSAW_SYSTEM_ERROR, "out of memory");
    } catch (const std::exception &error) {
        return note(ctx, JIGSAW_INTERNAL_ERROR, error.what());
    } catch (...) {
        return note(ctx, JIGSAW_INTERNAL_ERROR, "an exception of unknown type");
    }
}

void require(bool condition, const std::string &text)
{
    if (!condition)
        throw Error(JIGSAW_INVALID_ARGUMENT, text);
}

/// guard() for calls on a context.
template <typename Body> jigsaw_result_t on(jigsaw_context_t *ctx, const char *call, Body body)
{
    return guard(ctx, [&] {
        require(ctx != nullptr, std::string(call) + ": ctx is NULL; it comes from jigsaw_attach");
        body(ctx->session);
    });
}

/// Structures may grow at their end: `size` says how much of it the caller knows. `least` is the first version's.
template <typename T> void check_size(const T *out, std::size_t least, const char *call)
{
    require(out != nullptr, std::string(call) + ": the output is NULL");
    require(out->size >= least, std::string(call) + ": size is " + std::to_string(out->size) + ", at least " +
                                    std::to_string(least) + "; set it to sizeof the structure");
}

template <typename T> void copy_out(T *out, T value)
{
    const std::size_t caller_bytes = out->size;
    value.size = caller_bytes;
    std::memcpy(out, &value, std::min(caller_bytes, sizeof value));
}

} // namespace

jigsaw_result_t jigsaw_attach(jigsaw_context_t **ret_ctx, const jigsaw_config_t *config)
{
    return guard(nullptr, [&] {
        require(ret_ctx != nullptr, "jigsaw_attach: ret_ctx is NULL");
        *ret_ctx = new jigsaw_context(jigsaw::capi::make_settings(config));
    });
}

jigsaw_result_t jigsaw_detach(jigsaw_context_t *ctx)
{
    if (ctx == nullptr)
        return JIGSAW_SUCCESS;
    const jigsaw_result_t result = guard(nullptr, [&] { ctx->session.detach(); });
    delete ctx;
    return result;
}

jigsaw_result_t jigsaw_begin_iteration(jigsaw_context_t *ctx, jigsaw_iteration_t *ret_iteration)
{
    return on(ctx, "jigsaw_begin_iteration", [&](Session &session) {
        check_size(ret_iteration, sizeof *ret_iteration, "jigsaw_begin_iteration");
        copy_out(ret_iteration, session.begin_iteration());
    });
}

jigsaw_result_t jigsaw_block_ready(jigsaw_context_t *ctx, uint32_t block)
{
    return on(ctx, "jigsaw_block_ready", [&](Session &session) { session.block_ready(block); });
}

jigsaw_result_t jigsaw_end_forward(jigsaw_context_t *ctx)
{
    return on(ctx, "jigsaw_end_forward", [](Session &session) { session.end_forward(); });
}

jigsaw_result_t jigsaw_end_compute(jigsaw_context_t *ctx)
{
    return on(ctx, "jigsaw_end_compute", [](Session &session) { session.end_compute(); });
}

jigsaw_result_t jigsaw_sync(jigsaw_context_t *ctx, jigsaw_sync_result_t *ret_result, uint32_t timeout_ms)
{
    return on(ctx, "jigsaw_sync", [&](Session &session) {
        check_size(ret_result, offsetof(jigsaw_sync_result_t, sync_ns), "jigsaw_sync");
        copy_out(ret_result, session.sync(std::chrono::milliseconds(timeout_ms)));
    });
}

jigsaw_result_t jigsaw_turn_begin(jigsaw_context_t *ctx)
{
    return on(ctx, "jigsaw_turn_begin", [](Session &session) { session.turn_begin(); });
}

jigsaw_result_t jigsaw_turn_end(jigsaw_context_t *ctx)
{
    return on(ctx, "jigsaw_turn_end", [](Session &session) { session.turn_end(); });
}

jigsaw_result_t jigsaw_yield_turn(jigsaw_context_t *ctx)
{
    return on(ctx, "jigsaw_yield_turn", [](Session &session) { session.yield_turn(); });
}

jigsaw_result_t jigsaw_set_stream(jigsaw_context_t *ctx, void *cuda_stream)
{
    return on(ctx, "jigsaw_set_stream", [&](Session &session) { session.set_stream(cuda_stream); });
}

jigsaw_result_t jigsaw_set_blocks(jigsaw_context_t *ctx, const jigsaw_block_t *blocks, uint32_t num_blocks)
{
    return on(ctx, "jigsaw_set_blocks", [&](Session &session) {
        session.set_blocks(jigsaw::capi::checked_blocks("jigsaw_set_blocks", blocks, num_blocks));
    });
}

jigsaw_result_t jigsaw_skip_step(jigsaw_context_t *ctx)
{
    return on(ctx, "jigsaw_skip_step", [](Session &session) { session.skip_step(); });
}

jigsaw_result_t jigsaw_report(jigsaw_context_t *ctx, const jigsaw_report_t *report)
{
    return on(ctx, "jigsaw_report", [&](Session &session) {
        check_size(report, sizeof *report, "jigsaw_report");
        session.report(*report);
    });
}

jigsaw_result_t jigsaw_leave(jigsaw_context_t *ctx)
{
    return on(ctx, "jigsaw_leave", [](Session &session) { session.leave(); });
}

jigsaw_result_t jigsaw_broadcast(jigsaw_context_t *ctx, void *data, size_t bytes, uint32_t root)
{
    return on(ctx, "jigsaw_broadcast", [&](Session &session) {
        require(data != nullptr || bytes == 0, "jigsaw_broadcast: data is NULL");
        session.broadcast(data, bytes, root);
    });
}

jigsaw_result_t jigsaw_mean(jigsaw_context_t *ctx, double *data, size_t count)
{
    return on(ctx, "jigsaw_mean", [&](Session &session) {
        require(data != nullptr || count == 0, "jigsaw_mean: data is NULL");
        session.mean(data, count);
    });
}

int32_t jigsaw_rank(const jigsaw_context_t *ctx)
{
    return ctx != nullptr ? static_cast<int32_t>(ctx->session.rank()) : -1;
}

int32_t jigsaw_world_size(const jigsaw_context_t *ctx)
{
    return ctx != nullptr ? static_cast<int32_t>(ctx->session.world_size()) : -1;
}

jigsaw_result_t jigsaw_get_stats(const jigsaw_context_t *ctx, jigsaw_stats_t *ret_stats)
{
    return guard(nullptr, [&] {
        require(ctx != nullptr, "jigsaw_get_stats: ctx is NULL; it comes from jigsaw_attach");
        check_size(ret_stats, sizeof *ret_stats, "jigsaw_get_stats");
        copy_out(ret_stats, ctx->session.stats());
    });
}

const char *jigsaw_last_error(const jigsaw_context_t *ctx)
{
    return ctx != nullptr ? ctx->last_error.c_str() : thread_error.c_str();
}

const char *jigsaw_result_string(jigsaw_result_t result)
{
    switch (result) {
#define JIGSAW_RESULT_TEXT(name, number, text) \
    case JIGSAW_##name:                        \
        return text;
        JIGSAW_RESULT_MAP(JIGSAW_RESULT_TEXT)
#undef JIGSAW_RESULT_TEXT
    }
    return "not a result of jigsaw";
}

const char *jigsaw_version(void)
{
    return JIGSAW_STRING(JIGSAW_VERSION_MAJOR) "." JIGSAW_STRING(JIGSAW_VERSION_MINOR) "." JIGSAW_STRING(
        JIGSAW_VERSION_PATCH);
}

void *jigsaw_thread_world_create(uint32_t size)
{
    void *world = nullptr;
    guard(nullptr, [&] {
        require(size >= 1 && size <= 1024,
                "jigsaw_thread_world_create: size is " + std::to_string(size) + "; allowed are 1 to 1024");
        world = new std::shared_ptr<jigsaw::collective::ThreadWorld>(
            jigsaw::collective::make_thread_world(static_cast<int>(size)));
    });
    return world;
}

void jigsaw_thread_world_destroy(void *world)
{
    delete static_cast<std::shared_ptr<jigsaw::collective::ThreadWorld> *>(world);
}
