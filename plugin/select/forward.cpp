// SPDX-License-Identifier: GPL-2.0-or-later
// Entry points that are cons_tres's own. Which exist differs by release: 37 symbols in 22.05, 13 in 25.05.
#include "plugin/select/inner.hpp"

#define JIGSAW_FORWARD(result, name, parameters, arguments)                                                              \
    extern "C" __attribute__((visibility("default"))) result name parameters                                             \
    {                                                                                                                    \
        static auto *call = reinterpret_cast<result(*) parameters>(jigsaw::select::inner_symbol(#name));                 \
        return call arguments;                                                                                           \
    }

JIGSAW_FORWARD(int, select_p_job_begin, (job_record_t * job), (job))
JIGSAW_FORWARD(int, select_p_job_ready, (job_record_t * job), (job))
JIGSAW_FORWARD(int, select_p_select_nodeinfo_set_all, (void), ())

#if JIGSAW_SLURM_2605
JIGSAW_FORWARD(void, select_p_job_mem_reduce, (job_record_t * job), (job))
#endif

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
JIGSAW_FORWARD(int, select_p_job_init, (jigsaw::select::ListPtr jobs), (jobs))
JIGSAW_FORWARD(bitstr_t *, select_p_step_pick_nodes,
               (job_record_t * job, select_jobinfo_t *info, uint32_t count, bitstr_t **nodes), (job, info, count, nodes))
JIGSAW_FORWARD(int, select_p_step_start, (step_record_t * step), (step))
JIGSAW_FORWARD(int, select_p_step_finish, (step_record_t * step, bool killing), (step, killing))
JIGSAW_FORWARD(int, select_p_select_nodeinfo_pack, (select_nodeinfo_t * info, buf_t *buffer, uint16_t version),
               (info, buffer, version))
JIGSAW_FORWARD(int, select_p_select_nodeinfo_unpack, (select_nodeinfo_t * *info, buf_t *buffer, uint16_t version),
               (info, buffer, version))
JIGSAW_FORWARD(select_nodeinfo_t *, select_p_select_nodeinfo_alloc, (void), ())
JIGSAW_FORWARD(int, select_p_select_nodeinfo_free, (select_nodeinfo_t * info), (info))
JIGSAW_FORWARD(int, select_p_select_nodeinfo_get,
               (select_nodeinfo_t * info, enum select_nodedata_type type, enum node_states state, void *data),
               (info, type, state, data))
JIGSAW_FORWARD(select_jobinfo_t *, select_p_select_jobinfo_alloc, (void), ())
JIGSAW_FORWARD(int, select_p_select_jobinfo_free, (select_jobinfo_t * info), (info))
JIGSAW_FORWARD(int, select_p_select_jobinfo_set, (select_jobinfo_t * info, enum select_jobdata_type type, void *data),
               (info, type, data))
JIGSAW_FORWARD(int, select_p_select_jobinfo_get, (select_jobinfo_t * info, enum select_jobdata_type type, void *data),
               (info, type, data))
JIGSAW_FORWARD(select_jobinfo_t *, select_p_select_jobinfo_copy, (select_jobinfo_t * info), (info))
JIGSAW_FORWARD(int, select_p_select_jobinfo_pack, (select_jobinfo_t * info, buf_t *buffer, uint16_t version),
               (info, buffer, version))
JIGSAW_FORWARD(int, select_p_select_jobinfo_unpack, (select_jobinfo_t * *info, buf_t *buffer, uint16_t version),
               (info, buffer, version))
JIGSAW_FORWARD(int, select_p_get_info_from_plugin, (enum select_plugindata_info what, job_record_t *job, void *data),
               (what, job, data))
#endif

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 2, 0)
JIGSAW_FORWARD(int, select_p_job_signal, (job_record_t * job, int number), (job, number))
JIGSAW_FORWARD(char *, select_p_select_jobinfo_sprint, (select_jobinfo_t * info, char *text, size_t size, int mode),
               (info, text, size, mode))
JIGSAW_FORWARD(char *, select_p_select_jobinfo_xstrdup, (select_jobinfo_t * info, int mode), (info, mode))
JIGSAW_FORWARD(int, select_p_update_node_config, (int index), (index))
#endif

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 11, 0)
JIGSAW_FORWARD(bitstr_t *, select_p_resv_test,
               (resv_desc_msg_t * wish, uint32_t count, bitstr_t *nodes, bitstr_t **cores), (wish, count, nodes, cores))
#endif
