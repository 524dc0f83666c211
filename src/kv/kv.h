/* The cache: pages of keys and values with reference counts, and slots of recurrent state.
 *
 * A sequence owns a page table a group and one state slot. Before a step the engine reserves places for the new tokens,
 * after it it commits them; pages that left every sliding window are then released. Pages are shared by checkpoints
 * (and later by the prefix cache); a page that someone else holds is copied before a sequence writes into it, so what
 * was saved never changes. Not thread-safe: the engine's thread alone uses it. */
#ifndef QP_KV_KV_H
#define QP_KV_KV_H

#include "base/err.h"
#include "kv/kv_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qp_kv qp_kv;

typedef struct qp_kv_opts {
    uint32_t page_size;       /* tokens a page, 1 .. 4096 */
    uint32_t max_seqs;        /* sequences and checkpoints that have a state slot together */
    uint32_t max_model_len;   /* tokens a sequence */
    uint32_t max_step_tokens; /* new tokens a sequence in one step */
    uint64_t n_tokens;        /* tokens of all sequences together (full-attention groups) */
    qp_wtype type;
} qp_kv_opts;

typedef struct qp_kv_sizes {
    uint32_t n_groups;
    uint64_t n_pages[QP_MAX_KV_GROUPS];
    size_t page_bytes[QP_MAX_KV_GROUPS];
    size_t kv_bytes;    /* all pages */
    size_t state_bytes; /* all slots */
    size_t slot_floats;
} qp_kv_sizes;

/* What a cache takes; QP_ELIMIT when a size overflows. Allocates nothing. */
qp_status qp_kv_plan(const qp_cache_spec *spec, const qp_kv_opts *opts, qp_kv_sizes *out, qp_err *err);

/* spec is copied. */
qp_status qp_kv_new(qp_kv **out, const qp_cache_spec *spec, const qp_kv_opts *opts, qp_err *err);
void qp_kv_free(qp_kv *kv);
const qp_kv_view *qp_kv_get_view(const qp_kv *kv);
uint64_t qp_kv_n_free_pages(const qp_kv *kv, uint32_t group);
uint64_t qp_kv_n_pages(const qp_kv *kv, uint32_t group);

typedef struct qp_kv_seq {
    uint32_t len;                      /* tokens committed */
    int32_t *pages[QP_MAX_KV_GROUPS];  /* index: position / page_size; -1: released or not yet there */
    uint32_t first[QP_MAX_KV_GROUPS];  /* pages before this index are released */
    uint32_t n_held[QP_MAX_KV_GROUPS]; /* indexes first .. n_held - 1 have a page */
    int32_t slot;                      /* state slot, -1 when the model has no state */
} qp_kv_seq;

/* An empty sequence with zeroed state. QP_ELIMIT when no state slot is free. */
qp_status qp_kv_seq_init(qp_kv *kv, qp_kv_seq *seq, qp_err *err);
void qp_kv_seq_deinit(qp_kv *kv, qp_kv_seq *seq);

/* Makes places for positions len .. len + n - 1, copying a shared last page first. On QP_ELIMIT (no free page; nothing
 * is changed that matters: what was taken stays with the sequence for the next try) another sequence must give way. */
qp_status qp_kv_seq_reserve(qp_kv *kv, qp_kv_seq *seq, uint32_t n, qp_err *err);

/* The n tokens are in the cache: len grows, pages before every window of the group are released. */
void qp_kv_seq_commit(qp_kv *kv, qp_kv_seq *seq, uint32_t n);

/* Saves seq as it is into *saved (uninitialized storage): pages shared, state copied to a slot of its own. */
qp_status qp_kv_seq_save(qp_kv *kv, const qp_kv_seq *seq, qp_kv_seq *saved, qp_err *err);

/* Makes seq what saved is; saved stays valid and can be restored again. Cannot fail. */
void qp_kv_seq_restore(qp_kv *kv, qp_kv_seq *seq, const qp_kv_seq *saved);

/* Cuts seq to new_len tokens. QP_EUNSUPPORTED for models with recurrent state (use save and restore) and where a
 * sliding window's page has been released. */
qp_status qp_kv_seq_truncate(qp_kv *kv, qp_kv_seq *seq, uint32_t new_len, qp_err *err);

/* Checks every invariant of the pool against the given sequences (all that exist, checkpoints included): reference
 * counts, free lists, tables. For tests. QP_EINTERNAL names what is wrong. */
qp_status qp_kv_check(const qp_kv *kv, const qp_kv_seq *const *seqs, size_t n_seqs, qp_err *err);
#endif
