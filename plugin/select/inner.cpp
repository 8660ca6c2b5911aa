// SPDX-License-Identifier: GPL-2.0-or-later
// See inner.hpp. dlopen() there is RTLD_LAZY | RTLD_LOCAL: our select_p_* and its own do not clash.
#include "plugin/select/inner.hpp"

namespace jigsaw::select {
namespace {

plugin_handle_t handle = PLUGIN_INVALID_HANDLE;

template <class Function> Function *inner_function(const char *name)
{
    return reinterpret_cast<Function *>(inner_symbol(name));
}

} // namespace

bool load_inner()
{
    if (handle != PLUGIN_INVALID_HANDLE)
        return true;
    handle = plugin_load_and_link("select/cons_tres", 0, nullptr, nullptr);
    if (handle != PLUGIN_INVALID_HANDLE)
        return true;
    error("jigsaw: cannot load select/cons_tres, which select/jigsaw stands on; is select_cons_tres.so in PluginDir?");
    return false;
}

void unload_inner()
{
    if (handle != PLUGIN_INVALID_HANDLE)
        plugin_unload(handle);
    handle = PLUGIN_INVALID_HANDLE;
}

void *inner_symbol(const char *name)
{
    // dlsym, not plugin_get_sym: libslurm does not export that one to its clients.
    void *symbol = handle != PLUGIN_INVALID_HANDLE ? dlsym(static_cast<void *>(handle), name) : nullptr;
    if (!symbol)
        fatal("jigsaw: select/cons_tres has no %s; this Slurm is not the release the plugin was built for", name);
    return symbol;
}

int inner_job_test(const JobTest &test)
{
    static auto *call = inner_function<int JIGSAW_JOB_TEST_PARAMETERS>("select_p_job_test");
    return call JIGSAW_JOB_TEST_FIELDS(test);
}

int inner_nodeinfo_set(job_record_t *job)
{
    static auto *call = inner_function<int(job_record_t *)>("select_p_select_nodeinfo_set");
    return call(job);
}

int inner_job_fini(job_record_t *job)
{
    static auto *call = inner_function<int(job_record_t *)>("select_p_job_fini");
    return call(job);
}

int inner_job_resized(job_record_t *job, node_record_t *node)
{
    static auto *call = inner_function<int(job_record_t *, node_record_t *)>("select_p_job_resized");
    return call(job, node);
}

int inner_job_expand(job_record_t *from, job_record_t *to)
{
    static auto *call = inner_function<int(job_record_t *, job_record_t *)>("select_p_job_expand");
    return call(from, to);
}

int inner_job_suspend(job_record_t *job, bool indefinitely)
{
    static auto *call = inner_function<int(job_record_t *, bool)>("select_p_job_suspend");
    return call(job, indefinitely);
}

int inner_job_resume(job_record_t *job, bool indefinitely)
{
    static auto *call = inner_function<int(job_record_t *, bool)>("select_p_job_resume");
    return call(job, indefinitely);
}

int inner_node_init()
{
    static auto *call = inner_function<int()>("select_p_node_init");
    return call();
}

int inner_reconfigure()
{
    static auto *call = inner_function<int()>("select_p_reconfigure");
    return call();
}

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
int inner_state_save(char *folder)
{
    static auto *call = inner_function<int(char *)>("select_p_state_save");
    return call(folder);
}

int inner_state_restore(char *folder)
{
    static auto *call = inner_function<int(char *)>("select_p_state_restore");
    return call(folder);
}
#endif

} // namespace jigsaw::select
