/* Arithmetic on sizes that come from outside: each returns false on overflow and then leaves *out unspecified. */
#ifndef QP_BASE_CHECKED_H
#define QP_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool qp_mul_ok(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool qp_add_ok(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Rounds a up to a multiple of unit (unit > 0). */
static inline bool qp_round_up_ok(size_t a, size_t unit, size_t *out)
{
    size_t rest = a % unit;
    return qp_add_ok(a, rest ? unit - rest : 0, out);
}

static inline size_t qp_round_up(size_t a, size_t unit)
{
    return (a + unit - 1) / unit * unit;
}

static inline size_t qp_div_up(size_t a, size_t unit)
{
    return (a + unit - 1) / unit;
}

static inline size_t qp_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t qp_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}
#endif
