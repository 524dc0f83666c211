/* Seeded random numbers (SplitMix64): the same sequence on every machine. */
#ifndef QP_BASE_RNG_H
#define QP_BASE_RNG_H

#include <stdint.h>

typedef struct qp_rng {
    uint64_t state;
} qp_rng;

static inline uint64_t qp_rng_u64(qp_rng *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Uniform in [0, 1), 53 bits. */
static inline double qp_rng_unit(qp_rng *r)
{
    return (double)(qp_rng_u64(r) >> 11) * 0x1p-53;
}

/* Roughly normal, mean 0 and variance 1: a sum of twelve uniforms. */
static inline float qp_rng_normal(qp_rng *r)
{
    double s = -6;
    for (int i = 0; i < 12; i++) s += qp_rng_unit(r);
    return (float)s;
}
#endif
