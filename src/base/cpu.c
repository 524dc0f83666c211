/* CPU features: see cpu.h. */
#define _GNU_SOURCE
#include "base/cpu.h"

#include <sched.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t xgetbv0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* Whether the kernel lets this process use the tile data state (18); it refuses where it has no AMX support. */
static bool amx_granted(void)
{
    enum { REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
#if defined(__linux__) && defined(SYS_arch_prctl)
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

void qp_cpu_features_read(qp_cpu_features *out)
{
    unsigned a, b, c, d;
    memset(out, 0, sizeof *out);
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) >= 0x80000004u)
        for (unsigned i = 0; i < 3; i++) {
            unsigned r[4];
            __cpuid(0x80000002u + i, r[0], r[1], r[2], r[3]);
            memcpy(out->brand + 16 * i, r, 16);
        }
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return; /* no OSXSAVE */
    bool fma = c >> 12 & 1, f16c = c >> 29 & 1;
    uint64_t xcr0 = xgetbv0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    out->avx2 = (b >> 5 & 1) && fma && f16c && (xcr0 & 0x6) == 0x6;
    bool zmm = (xcr0 & 0xE6) == 0xE6;
    out->avx512 = out->avx2 && zmm && (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1);
    out->vnni = out->avx512 && (c >> 11 & 1) && (c >> 1 & 1);
    out->amx = out->vnni && (xcr0 >> 17 & 3) == 3 && (d >> 24 & 1) && (d >> 25 & 1) && amx_granted();
}
#else
void qp_cpu_features_read(qp_cpu_features *out)
{
    memset(out, 0, sizeof *out);
}
#endif

unsigned qp_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? (unsigned)n : 1;
}
