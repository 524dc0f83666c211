/* EXL3 tensors: binding names of a checkpoint to qp_exl3, and exact decoding. Facts: docs/formats.md, "EXL3".
 *
 * This file is the definition that every kernel is tested against: states, codebooks and tile order in plain C. It
 * computes no products (src/kernels/cpu/exl3_*.c) and encodes nothing. Invariant: what qp_exl3_bind accepted can be
 * decoded and multiplied without any further check. */
#ifndef QP_QUANT_EXL3_H
#define QP_QUANT_EXL3_H

#include "base/arena.h"
#include "base/err.h"
#include "io/safetensors.h"
#include "quant/exl3_types.h"

#include <stddef.h>
#include <stdint.h>

#define QP_EXL3_MCG_MULT 0xCBAC1FEDu
#define QP_EXL3_MUL1_MULT 0x83DCD12Du
#define QP_EXL3_3INST_MULT 89226354u
#define QP_EXL3_3INST_ADD 64248484u

/* Row (input channel) and column (output channel) of weight t, 0 .. 255, in its 16x16 tile. */
static inline unsigned qp_exl3_tile_row(unsigned t)
{
    return (t / 8 % 4) * 2 + (t & 1) + (t & 2) * 4;
}

static inline unsigned qp_exl3_tile_col(unsigned t)
{
    return t / 32 + (t & 4) * 2;
}

/* mul1: the sum of the four bytes of state * multiplier, 0 .. 1020. */
static inline unsigned qp_exl3_bytesum(uint16_t state)
{
    uint32_t x = state * QP_EXL3_MUL1_MULT;
    return (x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24);
}

/* Whether n_words (16 * K) is one of the eleven rates; whether K is a half rate (1.5, 2.5, 3.5). */
int qp_exl3_words_ok(uint64_t n_words);
int qp_exl3_words_half(uint64_t n_words);

/* The 256 states of one tile (16 * K little-endian int16 words) in stream order, states[t] that of weight t. */
void qp_exl3_tile_states(const uint16_t *tile, uint32_t n_words, uint16_t states[256]);

/* The fp16 bits of the value of a state. */
uint16_t qp_exl3_value(qp_exl3_codebook codebook, uint16_t state);

/* Fills *out from the tensors KEY.trellis, KEY.suh (or .su), KEY.svh (or .sv), KEY.mcg / KEY.mul1, KEY.bias of c.
 * n_in_true and n_out_true are the model's widths: at most the stored ones, which are multiples of 128. Everything is
 * checked here: dtypes, ranks, shapes, rate, codebook marker and its value, finite scales and bias. Trellis and fp16
 * scales stay in the mapping; scales made from sign words and the bias as fp32 are allocated from arena. *out borrows
 * from c and arena. QP_EFORMAT names the tensor, the value found and the value wanted; QP_ENOMEM; *out is untouched on
 * failure (the arena may have grown). */
qp_status qp_exl3_bind(qp_exl3 *out, const qp_checkpoint *c, const char *key, uint32_t n_in_true, uint32_t n_out_true,
                       qp_arena *arena, qp_err *err);

/* out: [n_in, n_out] fp16, the weights in the rotated basis, bit-exact. Does not overlap the tensor. Cannot fail. */
void qp_exl3_decode_inner(const qp_exl3 *t, uint16_t *out);

/* ---- trellis rows: token embeddings and n-gram tables of packs from 1.5 on ---- */

/* One ring: fp16 scale, then n * bits / 16 little-endian words, stream order LSB first. out[i] = value(state i) *
 * scale, fp32, i < n. n is a multiple of 16, bits 1 .. 8. The scale is used as found. */
void qp_exl3_ring_decode(const uint16_t *ring, uint32_t n, uint32_t bits, float *out);

/* A row of an n-gram table: ring of n values (at most 256; they are 160) plus bias [n] fp16, summed in fp32 and rounded
 * to fp16 (out [n]). */
void qp_exl3_ngram_row(const uint16_t *ring, uint32_t n, uint32_t bits, const uint16_t *bias, uint16_t *out);

typedef struct qp_exl3_rows {
    const uint16_t *trellis; /* [n_rows, n_groups * (1 + 16 * bits)] in the mapping */
    const uint16_t *signs;   /* [n_groups, 256] fp16, +1 or -1 */
    uint32_t n_rows;         /* as stored */
    uint32_t n_cols;         /* d_model: rows are cut to it */
    uint32_t n_groups, bits;
} qp_exl3_rows;

/* Whether KEY.trellis is there as rows (rank 2) and not as a linear (rank 3). */
int qp_exl3_is_rows(const qp_checkpoint *c, const char *key);

/* Fills *out from KEY.trellis and KEY.signs; n_rows_min: rows that the model needs, n_cols: their width. Reads every
 * scale of the table (one word a group) and refuses a non-finite one. Borrowed from c. */
qp_status qp_exl3_rows_bind(qp_exl3_rows *out, const qp_checkpoint *c, const char *key, uint32_t n_rows_min,
                            uint32_t n_cols, qp_err *err);

/* out[n_cols] = the row in fp32, row < n_rows. Cannot fail. */
void qp_exl3_rows_decode(const qp_exl3_rows *t, size_t row, float *out);

#endif
