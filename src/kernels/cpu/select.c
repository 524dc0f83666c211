/* Choice of the CPU level: see cpu_kernels.h. The tables are built once, each from the one below it. */
#include "kernels/cpu/cpu_kernels.h"

#include <pthread.h>
#include <string.h>

enum { N_LEVELS = 5 };
static const char *const names[N_LEVELS] = {"ref", "avx2", "avx512", "vnni", "amx"};
static qp_cpu_kernels tables[N_LEVELS];

static void build(void)
{
    qp_cpu_kernels k;
    memset(&k, 0, sizeof k);
    qp_cpu_fill_base_ref(&k);
    qp_cpu_fill_exl3_ref(&k);
    tables[0] = k;
#if defined(__x86_64__)
    qp_cpu_fill_base_avx2(&k);
    qp_cpu_fill_exl3_avx2(&k);
    tables[1] = k;
    qp_cpu_fill_base_avx512(&k);
    qp_cpu_fill_exl3_avx512(&k);
    tables[2] = k;
    qp_cpu_fill_exl3_vnni(&k);
    tables[3] = k;
    qp_cpu_fill_exl3_amx(&k);
    tables[4] = k;
#endif
    for (int i = 0; i < N_LEVELS; i++) tables[i].name = names[i];
}

qp_status qp_cpu_kernels_select(const qp_cpu_kernels **out, const qp_cpu_features *have, const char *forced,
                                qp_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const bool allowed[N_LEVELS] = {true, have->avx2, have->avx512, have->vnni, have->amx};
    int level = N_LEVELS - 1;
    pthread_once(&once, build);
    if (forced && *forced) {
        while (level >= 0 && strcmp(forced, names[level]) != 0) level--;
        if (level < 0) return qp_fail(err, QP_EINVAL, "QP_CPU=%s: must be ref, avx2, avx512, vnni or amx", forced);
        if (!allowed[level])
            return qp_fail(err, QP_EUNSUPPORTED, "QP_CPU=%s: this processor (%s) or its operating system lacks it",
                           forced, have->brand);
    } else {
        while (!allowed[level]) level--;
    }
    *out = &tables[level];
    return QP_OK;
}
