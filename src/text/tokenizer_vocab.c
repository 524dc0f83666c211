/* Vocabulary: ids to text, and bytes to ids by an open hash table of 16-byte entries. A piece of up to 8 bytes is
 * decided by its entry alone; a longer one is compared with the pool. */
#include "text/tokenizer_int.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <string.h>

static uint64_t load64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint32_t load32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* Up to 8 bytes: an injective packing for a given length. Longer: a hash. */
static inline uint64_t key_of(const char *s, size_t n)
{
    if (n <= 8) {
        if (n >= 4) return (uint64_t)load32(s) | (uint64_t)load32(s + n - 4) << 32;
        return (uint64_t)(unsigned char)s[0] | (uint64_t)(unsigned char)s[n / 2] << 8 |
               (uint64_t)(unsigned char)s[n - 1] << 16;
    }
    uint64_t h = n * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i + 8 < n; i += 8) {
        h = (h ^ load64(s + i)) * 0xBF58476D1CE4E5B9u;
        h ^= h >> 29;
    }
    h = (h ^ load64(s + n - 8)) * 0x94D049BB133111EBu;
    return h ^ h >> 32;
}

static inline size_t slot_of(uint64_t key, size_t n, int kind)
{
    uint64_t h = (key + n + ((uint64_t)kind << 40)) * 0x9E3779B97F4A7C15u;
    return (size_t)(h ^ h >> 32);
}

/* The bytes that id is entered under. */
static const char *bytes_of(const qp_tok_vocab *v, int32_t id, int kind, size_t *n)
{
    const qp_tok_text *t = &v->texts[id];
    *n = kind == QP_TOK_LITERAL ? t->len : t->raw_len;
    return v->pool.data + (kind == QP_TOK_LITERAL ? t->off : t->raw_off);
}

void qp_tok_vocab_deinit(qp_tok_vocab *v)
{
    qp_free(v->texts);
    qp_buf_deinit(&v->pool);
    qp_free(v->table);
    memset(v, 0, sizeof *v);
}

qp_status qp_tok_vocab_reserve(qp_tok_vocab *v, size_t n, qp_err *err)
{
    size_t size = 64;
    while (size < 2 * n) size *= 2;
    if (v->table && size <= v->mask + 1) return QP_OK;
    qp_tok_entry *old = v->table, *table;
    size_t old_size = old ? v->mask + 1 : 0;
    QP_TRY(qp_new(&table, size, sizeof *table, "vocabulary table", err));
    for (size_t i = 0; i < size; i++) table[i].id = QP_TOK_NO_ID;
    v->table = table;
    v->mask = size - 1;
    for (size_t i = 0; i < old_size; i++) {
        if (old[i].id < 0) continue;
        size_t n_bytes;
        bytes_of(v, old[i].id, old[i].kind, &n_bytes);
        size_t at = slot_of(old[i].key, n_bytes, old[i].kind) & v->mask;
        while (table[at].id >= 0) at = (at + 1) & v->mask;
        memcpy(&table[at], &old[i], sizeof old[i]);
    }
    qp_free(old);
    return QP_OK;
}

qp_status qp_tok_vocab_grow_ids(qp_tok_vocab *v, size_t n_ids, qp_err *err)
{
    if (n_ids <= v->n_ids) return QP_OK;
    if (n_ids > v->cap_ids) {
        size_t cap = qp_max_size(n_ids, v->cap_ids + v->cap_ids / 2);
        qp_tok_text *p = qp_realloc(v->texts, v->n_ids * sizeof *p, cap * sizeof *p);
        if (!p) return qp_fail(err, QP_ENOMEM, "tokens: no memory for %zu ids", cap);
        v->texts = p;
        v->cap_ids = cap;
    }
    for (size_t i = v->n_ids; i < n_ids; i++) v->texts[i] = (qp_tok_text){UINT32_MAX, 0, UINT32_MAX, 0};
    v->n_ids = n_ids;
    return QP_OK;
}

qp_status qp_tok_vocab_set_text(qp_tok_vocab *v, int32_t id, const char *text, size_t len, const char *raw,
                                size_t raw_len, qp_err *err)
{
    qp_tok_text *t = &v->texts[id];
    size_t off = v->pool.len;
    /* Two copies of what a file of at most 256 MiB holds, so offsets fit 32 bits; checked all the same. */
    if (off > UINT32_MAX - 1 || len > UINT32_MAX / 4 || raw_len > UINT32_MAX / 4)
        return qp_fail(err, QP_ELIMIT, "tokens: more than 4 GiB of text");
    qp_buf_add(&v->pool, text, len);
    if (raw) qp_buf_add(&v->pool, raw, raw_len);
    QP_TRY(qp_buf_check(&v->pool, "text of the tokens", err));
    t->off = (uint32_t)off;
    t->len = (uint32_t)len;
    t->raw_off = (uint32_t)(raw ? off + len : off);
    t->raw_len = (uint32_t)(raw ? raw_len : len);
    return QP_OK;
}

static bool same(const qp_tok_vocab *v, const qp_tok_entry *e, uint64_t key, const char *s, size_t n, int kind)
{
    if (e->key != key || e->kind != kind || e->len != qp_min_size(n, UINT16_MAX)) return false;
    if (n <= 8) return true;
    size_t have;
    const char *bytes = bytes_of(v, e->id, kind, &have);
    return have == n && memcmp(bytes, s, n) == 0;
}

qp_status qp_tok_vocab_insert(qp_tok_vocab *v, int32_t id, int kind, int32_t *old, qp_err *err)
{
    size_t n;
    const char *s = bytes_of(v, id, kind, &n);
    *old = QP_TOK_NO_ID;
    if (n == 0) return QP_OK; /* an empty token can never be a piece */
    QP_TRY(qp_tok_vocab_reserve(v, v->n_entries + 1, err));
    uint64_t key = key_of(s, n);
    size_t at = slot_of(key, n, kind) & v->mask;
    for (unsigned probes = 0; v->table[at].id >= 0; at = (at + 1) & v->mask) {
        if (same(v, &v->table[at], key, s, n, kind)) {
            *old = v->table[at].id;
            return QP_OK;
        }
        if (++probes > QP_TOK_MAX_PROBES)
            return qp_fail(err, QP_ELIMIT, "vocabulary: more than %d tokens share a hash", QP_TOK_MAX_PROBES);
    }
    qp_tok_entry *e = &v->table[at];
    e->key = key;
    e->id = id;
    e->len = (uint16_t)qp_min_size(n, UINT16_MAX);
    e->kind = (uint8_t)kind;
    v->n_entries++;
    return QP_OK;
}

qp_tok_entry *qp_tok_vocab_find(const qp_tok_vocab *v, const char *s, size_t n, int kind)
{
    if (!v->table || n == 0) return NULL;
    uint64_t key = key_of(s, n);
    for (size_t at = slot_of(key, n, kind) & v->mask;; at = (at + 1) & v->mask) {
        qp_tok_entry *e = &v->table[at];
        if (e->id < 0) return NULL;
        if (same(v, e, key, s, n, kind)) return e;
    }
}
