/* Time. */
#ifndef QP_BASE_CLOCK_H
#define QP_BASE_CLOCK_H

#include <stdint.h>

/* Monotonic nanoseconds. */
uint64_t qp_clock_ns(void);

/* Seconds since 1970, or the value of QP_FAKE_NOW (seconds) where that is set: templates and tests read the date here.
 */
int64_t qp_clock_unix(void);
#endif
