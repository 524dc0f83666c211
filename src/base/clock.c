/* Time: see clock.h. */
#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

uint64_t qp_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int64_t qp_clock_unix(void)
{
    const char *fake = getenv("QP_FAKE_NOW");
    if (fake && *fake) {
        char *end;
        long long v = strtoll(fake, &end, 10);
        if (!*end) return v;
    }
    return time(NULL);
}
