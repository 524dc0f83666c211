/* Memory of this machine and this process: see sysmem.h. */
#include "cli/sysmem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The number at the start of a file, or `fallback` ("max", no such file). */
static size_t read_number(const char *path, size_t fallback)
{
    FILE *f = fopen(path, "r");
    unsigned long long v;
    size_t out = fallback;
    if (!f) return out;
    if (fscanf(f, "%llu", &v) == 1) out = (size_t)v;
    fclose(f);
    return out;
}

size_t qp_mem_available(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[256];
    unsigned long long kib = 0;
    size_t out = 0;
    if (f) {
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) out = (size_t)kib * 1024;
        fclose(f);
    }
    /* Version 2 of control groups. File pages count as current, but the kernel gives them back when asked. */
    size_t max = read_number("/sys/fs/cgroup/memory.max", 0), current = read_number("/sys/fs/cgroup/memory.current", 0);
    if (!max || max > (size_t)1 << 60) return out;
    f = fopen("/sys/fs/cgroup/memory.stat", "r");
    unsigned long long file = 0, v;
    if (f) {
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "inactive_file %llu", &v) == 1 || sscanf(line, "active_file %llu", &v) == 1) file += v;
        fclose(f);
    }
    current -= file < current ? (size_t)file : current;
    size_t left = max > current ? max - current : 0;
    return left < out || !out ? left : out;
}

size_t qp_mem_resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long long total, resident = 0;
    long page = sysconf(_SC_PAGESIZE);
    if (!f) return 0;
    if (fscanf(f, "%llu %llu", &total, &resident) != 2) resident = 0;
    fclose(f);
    return page > 0 ? (size_t)resident * (size_t)page : 0;
}
