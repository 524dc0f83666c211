/* Byte-pair encoding of a piece. Three ways, all with the same result:
 * - the piece is a token that merging is known to give (remembered per token): one lookup;
 * - few symbols: pairs in a dense array, the best found by scanning it;
 * - many symbols: a heap over (rank, position) with stale entries dropped, n log n.
 * Where there is no pre-tokenizer a "piece" is the whole text. It is cut wherever no merge at all joins the two code
 * points beside the cut: a token that spanned it would have been made by such a merge. */
#include "text/tokenizer_int.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/utf8.h"

#include <string.h>

enum { SMALL_BYTES = 96, SMALL_SYMBOLS = 2 * SMALL_BYTES };
#define NO_PAIR UINT64_MAX
#define NO_RANK INT32_MAX

/* ---- merge table ---- */

static size_t pair_slot(int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (size_t)(h ^ h >> 29);
}

qp_status qp_tok_merges_reserve(qp_tokenizer *t, size_t n, qp_err *err)
{
    size_t size = 64;
    while (size < 2 * n) size *= 2;
    if (t->merges && size <= t->merge_mask + 1) return QP_OK;
    qp_tok_merge *old = t->merges, *table;
    size_t old_size = old ? t->merge_mask + 1 : 0;
    size_t bytes;
    if (!qp_mul_ok(size, sizeof *table, &bytes) || !(table = qp_malloc(bytes)))
        return qp_fail(err, QP_ENOMEM, "merges: no memory for %zu x %zu bytes", size, sizeof *table);
    memset(table, 0xFF, bytes);
    t->merges = table;
    t->merge_mask = size - 1;
    for (size_t i = 0; i < old_size; i++) {
        if (old[i].rank == UINT32_MAX) continue;
        size_t at = pair_slot(old[i].left, old[i].right) & t->merge_mask;
        while (table[at].rank != UINT32_MAX) at = (at + 1) & t->merge_mask;
        table[at] = old[i];
    }
    qp_free(old);
    return QP_OK;
}

qp_status qp_tok_merges_insert(qp_tokenizer *t, int32_t left, int32_t right, uint32_t rank, int32_t id, qp_err *err)
{
    size_t at = pair_slot(left, right) & t->merge_mask;
    for (unsigned probes = 0; t->merges[at].rank != UINT32_MAX; at = (at + 1) & t->merge_mask) {
        if (t->merges[at].left == left && t->merges[at].right == right) {
            t->merges[at].rank = rank; /* a repeated pair: the later rank counts, as in the library */
            return QP_OK;
        }
        if (++probes > QP_TOK_MAX_PROBES)
            return qp_fail(err, QP_ELIMIT, "%s: more than %d merges share a hash", t->name, QP_TOK_MAX_PROBES);
    }
    t->merges[at] = (qp_tok_merge){left, right, rank, id};
    return QP_OK;
}

static inline uint64_t find_pair(const qp_tokenizer *t, int32_t left, int32_t right)
{
    size_t h = pair_slot(left, right), bit = h >> 32 & t->filter_mask;
    if (!(t->filter[bit / 64] >> (bit % 64) & 1)) return NO_PAIR;
    for (size_t at = h & t->merge_mask;; at = (at + 1) & t->merge_mask) {
        const qp_tok_merge *m = &t->merges[at];
        if (m->rank == UINT32_MAX) return NO_PAIR;
        if (m->left == left && m->right == right) return (uint64_t)m->rank << 32 | (uint32_t)m->id;
    }
}

/* Most pairs asked for are no merge, and the table does not fit the caches: a bit set that does, eight or more bits a
 * merge, answers those first. Measured on Chinese: 1.9 times the speed. */
static qp_status build_filter(qp_tokenizer *t, qp_err *err)
{
    size_t bits = 4096;
    while (bits < 4 * (t->merge_mask + 1)) bits *= 2;
    QP_TRY(qp_new(&t->filter, bits / 64, 8, "merges", err));
    t->filter_mask = bits - 1;
    for (size_t i = 0; i <= t->merge_mask; i++) {
        if (t->merges[i].rank == UINT32_MAX) continue;
        size_t bit = pair_slot(t->merges[i].left, t->merges[i].right) >> 32 & t->filter_mask;
        t->filter[bit / 64] |= (uint64_t)1 << (bit % 64);
    }
    return QP_OK;
}

/* ---- where a text may be cut ---- */

static size_t join_bit(int32_t a, int32_t b)
{
    uint64_t h = ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * 0xBF58476D1CE4E5B9u;
    return (size_t)(h >> (64 - QP_TOK_JOIN_BITS_LOG2));
}

static void join_add(qp_tokenizer *t, int32_t a, int32_t b)
{
    size_t bit = join_bit(a, b);
    t->joins[bit / 64] |= (uint64_t)1 << (bit % 64);
    if (a < 128 && b < 128) t->ascii_joins[a][b / 64] |= (uint64_t)1 << (b % 64);
}

enum { WHOLE_PART = 1, PART_WHOLE, PART_PART }; /* what a merge has on its sides of a border of code points */

static size_t partial_bit(int kind, int32_t a, int32_t b)
{
    uint64_t h = ((uint64_t)(uint32_t)a << 32 | (uint64_t)kind << 24 | (uint32_t)b) * 0x94D049BB133111EBu;
    return (size_t)(h >> 40 & (QP_TOK_PARTIAL_BITS - 1));
}

static void partial_add(qp_tokenizer *t, int kind, int32_t a, int32_t b)
{
    size_t bit = partial_bit(kind, a, b);
    t->partial[bit / 64] |= (uint64_t)1 << (bit % 64);
}

static bool partial_has(const qp_tokenizer *t, int kind, int32_t a, int32_t b)
{
    size_t bit = partial_bit(kind, a, b);
    return t->partial[bit / 64] >> (bit % 64) & 1;
}

/* The end of s: a whole code point (returned), or -1: only a part of one, or -2: the border is inside a code point or
 * the bytes cannot stand in UTF-8. */
static int32_t last_of(const char *s, size_t n)
{
    size_t k = n;
    int32_t cp;
    while (k > 0 && n - k < 4 && ((unsigned char)s[k - 1] & 0xC0) == 0x80) k--;
    if (k == 0) return n < 4 ? -1 : -2;
    return qp_utf8_decode(s + k - 1, n - k + 1, &cp) == n - k + 1 && cp >= 0 ? cp : -2;
}

static int32_t first_of(const char *s, size_t n)
{
    int32_t cp;
    if (((unsigned char)s[0] & 0xC0) == 0x80) return -2;
    size_t len = qp_utf8_decode(s, n, &cp);
    if (cp >= 0) return cp;
    return len == n && qp_utf8_incomplete_tail(s, n) == n ? -1 : -2;
}

void qp_tok_joins_note(qp_tokenizer *t, int32_t left, int32_t right, int32_t id)
{
    const qp_tok_text *x = &t->vocab.texts[left], *y = &t->vocab.texts[right];
    const char *a = t->vocab.pool.data + x->raw_off, *b = t->vocab.pool.data + y->raw_off;
    if (t->used[id]) t->monotone = false;
    t->used[left] = t->used[right] = 1;
    int32_t last = last_of(a, x->raw_len), first = first_of(b, y->raw_len);
    if (last >= 0 && first >= 0) join_add(t, last, first);
    if (last >= 0 && first == -1) partial_add(t, WHOLE_PART, last, (unsigned char)b[0]);
    if (last == -1 && first >= 0) partial_add(t, PART_WHOLE, (unsigned char)a[x->raw_len - 1], first);
    if (last == -1 && first == -1) partial_add(t, PART_PART, (unsigned char)a[x->raw_len - 1], (unsigned char)b[0]);
}

/* False only when no merge joins a and b. */
static inline bool joins(const qp_tokenizer *t, int32_t a, int32_t b)
{
    if (a < 128 && b < 128) return t->ascii_joins[a][b / 64] >> (b % 64) & 1;
    size_t bit = join_bit(a, b);
    return t->joins[bit / 64] >> (bit % 64) & 1;
}

qp_status qp_tok_bpe_finish(qp_tokenizer *t, qp_err *err)
{
    for (int c = 0; c < 128; c++) {
        char text = (char)c;
        qp_tok_entry *e = qp_tok_vocab_find(&t->vocab, &text, 1, QP_TOK_PIECE);
        t->ascii_ids[c] = e ? e->id : QP_TOK_NO_ID;
    }
    QP_TRY(build_filter(t, err));
    if (!t->byte_level) return QP_OK;
    t->all_bytes = true;
    for (int b = 0; b < 256; b++) {
        char text = (char)b;
        qp_tok_entry *e = qp_tok_vocab_find(&t->vocab, &text, 1, QP_TOK_PIECE);
        t->byte_ids[b] = e ? e->id : QP_TOK_NO_ID;
        t->all_bytes &= e != NULL;
    }
    if (!t->all_bytes) return QP_OK;
    QP_TRY(qp_new(&t->byte_pairs, 65536, sizeof *t->byte_pairs, "pairs of bytes", err));
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++) t->byte_pairs[a << 8 | b] = find_pair(t, t->byte_ids[a], t->byte_ids[b]);
    return QP_OK;
}

/* ---- text to symbols ---- */

typedef struct symbols {
    int32_t *ids;
    size_t n;
    bool unknown; /* the last symbol is an unk_token */
} symbols;

/* A code point (of the text, or of the byte alphabet) that is no token: by its bytes, as unk_token, or dropped. */
static void add_unknown(const qp_tokenizer *t, symbols *y, const char *utf8, size_t len)
{
    bool all = t->byte_fallback;
    for (size_t k = 0; k < len && all; k++) all = t->fallback_ids[(unsigned char)utf8[k]] >= 0;
    if (all) {
        for (size_t k = 0; k < len; k++) y->ids[y->n++] = t->fallback_ids[(unsigned char)utf8[k]];
        y->unknown = false;
        return;
    }
    if (t->unk < 0) return;
    if (!(y->unknown && t->fuse_unk)) y->ids[y->n++] = t->unk;
    y->unknown = true;
}

/* The UTF-8 of the symbol of a byte. */
static size_t symbol_text(unsigned char b, char out[2])
{
    unsigned cp;
    if ((b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD))
        cp = b;
    else if (b <= 0x20)
        cp = 0x100u + b;
    else if (b <= 0xA0)
        cp = 0x121u + (b - 0x7Fu);
    else
        cp = 0x143;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    out[0] = (char)(0xC0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3F));
    return 2;
}

/* True unless no merge joins a part of the code point a (the bytes before s) to b, which starts at s, or a to a part
 * of b. */
static inline bool joins_in_parts(const qp_tokenizer *t, int32_t a, int32_t b, const char *s)
{
    unsigned char last = (unsigned char)s[-1], lead = (unsigned char)s[0];
    return (lead >= 0x80 && partial_has(t, WHOLE_PART, a, lead)) ||
           (last >= 0x80 && partial_has(t, PART_WHOLE, last, b)) ||
           (last >= 0x80 && lead >= 0x80 && partial_has(t, PART_PART, last, lead));
}

static uint8_t settle(const qp_tokenizer *t, qp_tok_entry *e, const char *s, size_t n);

/* Bytes to symbols, but a code point that only joins others as a whole starts as the token that its bytes merge to.
 * That leaves the result the same when every merge ranks after those that make its parts (`monotone`): a token made too
 * early finds no merge that could come before its own making. */
static void symbolize_code_points(const qp_tokenizer *t, const char *s, size_t n, symbols *y)
{
    size_t len, next_len = 0;
    int32_t cp = qp_uni_decode(s, &len), next = 0;
    bool parts_before = false;
    for (size_t i = 0; i < n; i += len, len = next_len, cp = next) {
        bool parts_after = false;
        if (i + len < n) {
            next = qp_uni_decode(s + i + len, &next_len);
            parts_after = joins_in_parts(t, cp, next, s + i + len);
        }
        qp_tok_entry *e = NULL;
        if (!parts_before && !parts_after && len > 1) e = qp_tok_vocab_find(&t->vocab, s + i, len, QP_TOK_PIECE);
        if (e && settle(t, e, s + i, len) == QP_TOK_WHOLE)
            y->ids[y->n++] = e->id;
        else
            for (size_t k = 0; k < len; k++) y->ids[y->n++] = t->byte_ids[(unsigned char)s[i + k]];
        parts_before = parts_after;
    }
}

/* At most two symbols a byte are written (one, unless a byte's own symbol is missing). */
static void symbolize(const qp_tokenizer *t, const char *s, size_t n, symbols *y)
{
    if (t->all_bytes) {
        for (size_t i = 0; i < n; i++) y->ids[i] = t->byte_ids[(unsigned char)s[i]];
        y->n = n;
        return;
    }
    for (size_t i = 0, len = 1; i < n; i += len) {
        unsigned char b = (unsigned char)s[i];
        int32_t id;
        char text[2];
        if (t->byte_level) {
            id = t->byte_ids[b];
            if (id < 0) {
                add_unknown(t, y, text, symbol_text(b, text));
                continue;
            }
        } else {
            len = qp_uni_len(b);
            if (b < 0x80) {
                id = t->ascii_ids[b];
            } else {
                const qp_tok_entry *e = qp_tok_vocab_find(&t->vocab, s + i, len, QP_TOK_PIECE);
                id = e ? e->id : QP_TOK_NO_ID;
            }
            if (id < 0) {
                add_unknown(t, y, s + i, len);
                continue;
            }
        }
        y->ids[y->n++] = id;
        y->unknown = false;
    }
}

/* ---- merging ---- */

/* Few symbols. Positions stay where they are and are linked, so that nothing moves; rank[i] is that of merging i with
 * its next. Scanning for the lowest rank is one pass without branches (it becomes vector code) and a short search. */
typedef struct small_merge {
    int32_t ids[SMALL_SYMBOLS];
    int32_t merged[SMALL_SYMBOLS]; /* id that the merge gives */
    int32_t rank[SMALL_SYMBOLS];   /* NO_RANK: none, or the position is gone */
    uint8_t next[SMALL_SYMBOLS], prev[SMALL_SYMBOLS];
} small_merge;

static inline void set_pair(small_merge *m, size_t i, uint64_t pair)
{
    m->rank[i] = pair == NO_PAIR ? NO_RANK : (int32_t)(pair >> 32);
    m->merged[i] = (int32_t)(uint32_t)pair;
}

/* Merges until nothing can be; the symbols left are those reached from 0 by next. n >= 2. */
static void merge_small(const qp_tokenizer *t, small_merge *m, size_t n)
{
    m->rank[n - 1] = NO_RANK;
    for (size_t i = 0; i < n; i++) {
        m->next[i] = (uint8_t)(i + 1);
        m->prev[i] = (uint8_t)(i - 1); /* of 0: not used */
    }
    for (;;) {
        int32_t best = NO_RANK;
        size_t at = 0;
        for (size_t i = 0; i < n; i++) best = m->rank[i] < best ? m->rank[i] : best;
        if (best == NO_RANK) return;
        while (m->rank[at] != best) at++;
        size_t gone = m->next[at], after = m->next[gone];
        m->ids[at] = m->merged[at];
        m->rank[gone] = NO_RANK;
        m->next[at] = (uint8_t)after;
        if (after < n) {
            m->prev[after] = (uint8_t)at;
            set_pair(m, at, find_pair(t, m->ids[at], m->ids[after]));
        } else {
            m->rank[at] = NO_RANK;
        }
        if (at) set_pair(m, m->prev[at], find_pair(t, m->ids[m->prev[at]], m->ids[at]));
    }
}

typedef struct big_merge {
    int32_t *ids;          /* by position; the position of a merged symbol is that of its first part */
    uint32_t *next, *prev; /* UINT32_MAX: none */
    uint64_t *pairs;       /* merge with the next symbol, NO_PAIR none (or the position is gone) */
    uint64_t *heap;        /* rank << 32 | position, smallest first, four children a node */
    size_t n_heap;
} big_merge;

static void heap_down(uint64_t *heap, size_t n, size_t at)
{
    uint64_t v = heap[at];
    for (;;) {
        size_t child = 4 * at + 1, best;
        if (child >= n) break;
        best = child;
        for (size_t k = child + 1; k < child + 4 && k < n; k++)
            if (heap[k] < heap[best]) best = k;
        if (heap[best] >= v) break;
        heap[at] = heap[best];
        at = best;
    }
    heap[at] = v;
}

static void heap_push(big_merge *m, uint64_t v)
{
    size_t at = m->n_heap++;
    while (at > 0 && m->heap[(at - 1) / 4] > v) {
        m->heap[at] = m->heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    m->heap[at] = v;
}

/* The pair at position i has changed: remembers it and queues it. */
static void renew(const qp_tokenizer *t, big_merge *m, uint32_t i)
{
    m->pairs[i] = m->next[i] == UINT32_MAX ? NO_PAIR : find_pair(t, m->ids[i], m->ids[m->next[i]]);
    if (m->pairs[i] != NO_PAIR) heap_push(m, (m->pairs[i] >> 32) << 32 | i);
}

static size_t merge_big(const qp_tokenizer *t, big_merge *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        m->next[i] = i + 1 < n ? (uint32_t)(i + 1) : UINT32_MAX;
        m->prev[i] = i ? (uint32_t)(i - 1) : UINT32_MAX;
        m->pairs[i] = i + 1 < n ? find_pair(t, m->ids[i], m->ids[i + 1]) : NO_PAIR;
        if (m->pairs[i] != NO_PAIR) m->heap[m->n_heap++] = (m->pairs[i] >> 32) << 32 | i;
    }
    if (m->n_heap > 1)
        for (size_t i = (m->n_heap - 2) / 4 + 1; i-- > 0;) heap_down(m->heap, m->n_heap, i);
    while (m->n_heap) {
        uint64_t top = m->heap[0];
        uint32_t i = (uint32_t)top;
        m->heap[0] = m->heap[--m->n_heap];
        if (m->n_heap) heap_down(m->heap, m->n_heap, 0);
        if (m->pairs[i] == NO_PAIR || m->pairs[i] >> 32 != top >> 32) continue; /* stale */
        uint32_t gone = m->next[i];
        m->ids[i] = (int32_t)(uint32_t)m->pairs[i];
        m->next[i] = m->next[gone];
        if (m->next[i] != UINT32_MAX) m->prev[m->next[i]] = i;
        m->pairs[gone] = NO_PAIR;
        renew(t, m, i);
        if (m->prev[i] != UINT32_MAX) renew(t, m, m->prev[i]);
    }
    size_t left = 0;
    for (uint32_t i = 0; n && i != UINT32_MAX; i = m->next[i]) m->ids[left++] = m->ids[i];
    return left;
}

static qp_status push_all(qp_tok_ctx *c, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) QP_TRY(qp_tok_push(c, ids[i]));
    return QP_OK;
}

static void merge_pairs(const qp_tokenizer *t, small_merge *m, size_t n)
{
    if (n < 2) {
        m->next[0] = 1;
        return;
    }
    for (size_t i = 0; i + 1 < n; i++) set_pair(m, i, find_pair(t, m->ids[i], m->ids[i + 1]));
    merge_small(t, m, n);
}

/* Symbols of s merged; returns how many positions there are (the first is 0, then follow next). ascii: s is known to be
 * ASCII. n is at most SMALL_BYTES. */
static size_t run_small(const qp_tokenizer *t, const char *s, size_t n, bool ascii, small_merge *m)
{
    symbols y = {m->ids, 0, false};
    if (t->all_bytes && t->monotone && !ascii) {
        symbolize_code_points(t, s, n, &y);
        merge_pairs(t, m, y.n);
        return y.n;
    }
    symbolize(t, s, n, &y);
    if (!t->byte_pairs || n < 2) {
        merge_pairs(t, m, y.n);
        return y.n;
    }
    for (size_t i = 0; i + 1 < n; i++)
        set_pair(m, i, t->byte_pairs[(unsigned char)s[i] << 8 | (unsigned char)s[i + 1]]);
    merge_small(t, m, n);
    return n;
}

/* Whether merging the bytes of the token e gives e; found out once. n is at most SMALL_BYTES. */
static uint8_t settle(const qp_tokenizer *t, qp_tok_entry *e, const char *s, size_t n)
{
    uint8_t state = atomic_load_explicit(&e->state, memory_order_relaxed);
    if (state != QP_TOK_UNKNOWN) return state;
    small_merge m;
    size_t left = run_small(t, s, n, true, &m); /* as bytes: no shortcut may ask for this very token */
    state = left && m.next[0] >= left && m.ids[0] == e->id ? QP_TOK_WHOLE : QP_TOK_SPLIT;
    atomic_store_explicit(&e->state, state, memory_order_relaxed);
    return state;
}

static bool is_ascii(const char *s, size_t n)
{
    unsigned char all = 0;
    for (size_t i = 0; i < n; i++) all |= (unsigned char)s[i];
    return all < 0x80;
}

static qp_status encode_small(qp_tok_ctx *c, const char *s, size_t n)
{
    small_merge m;
    size_t left = run_small(c->t, s, n, is_ascii(s, n), &m);
    for (size_t i = 0; i < left; i = m.next[i]) QP_TRY(qp_tok_push(c, m.ids[i]));
    return QP_OK;
}

static qp_status encode_big(qp_tok_ctx *c, const char *s, size_t n)
{
    /* Pushes: one a pair at the start, at most two a merge, so three a symbol. */
    size_t most = c->t->all_bytes || !c->t->byte_level ? n : 2 * n;
    char *mem = qp_tok_ctx_scratch(c, most * (8 + 24 + 4 + 4 + 4));
    if (!mem) return QP_ENOMEM;
    big_merge m = {.pairs = (void *)mem, .heap = (void *)(mem + 8 * most), .ids = (void *)(mem + 32 * most)};
    m.next = (void *)(mem + 36 * most);
    m.prev = (void *)(mem + 40 * most);
    symbols y = {m.ids, 0, false};
    symbolize(c->t, s, n, &y);
    return push_all(c, m.ids, merge_big(c->t, &m, y.n));
}

/* A piece, or a part of one that no merge joins to the rest. */
static qp_status encode_unit(qp_tok_ctx *c, const char *s, size_t n)
{
    const qp_tokenizer *t = c->t;
    qp_tok_entry *e = qp_tok_vocab_find(&t->vocab, s, n, QP_TOK_PIECE);
    uint8_t state = e ? atomic_load_explicit(&e->state, memory_order_relaxed) : QP_TOK_SPLIT;
    if (state == QP_TOK_WHOLE) return qp_tok_push(c, e->id);
    size_t before = c->out->n;
    QP_TRY(n <= SMALL_BYTES ? encode_small(c, s, n) : encode_big(c, s, n));
    if (state == QP_TOK_UNKNOWN) {
        bool whole = c->out->n == before + 1 && c->out->ids[before] == e->id;
        atomic_store_explicit(&e->state, whole ? QP_TOK_WHOLE : QP_TOK_SPLIT, memory_order_relaxed);
    }
    return QP_OK;
}

static bool is_known(const qp_tokenizer *t, int32_t cp, const char *s, size_t len)
{
    if (cp < 128) return t->ascii_ids[cp] >= 0;
    return qp_tok_vocab_find(&t->vocab, s, len, QP_TOK_PIECE) != NULL;
}

/* Cuts a piece between two code points that nothing joins. Where code points are symbols both must be tokens: bytes
 * that stand in for one, or unk_token, are not covered by `joins`. */
static qp_status encode_cut(qp_tok_ctx *c, const char *s, size_t n)
{
    const qp_tokenizer *t = c->t;
    size_t start = 0, before_at = 0, len;
    int32_t before = -1, cp;
    for (size_t i = 0; i < n; i += len) {
        cp = qp_uni_decode(s + i, &len);
        if (before >= 0 && !joins(t, before, cp) &&
            (t->byte_level ? !joins_in_parts(t, before, cp, s + i)
                           : is_known(t, before, s + before_at, i - before_at) && is_known(t, cp, s + i, len))) {
            QP_TRY(encode_unit(c, s + start, i - start));
            start = i;
        }
        before = cp;
        before_at = i;
    }
    return encode_unit(c, s + start, n - start);
}

qp_status qp_tok_bpe(qp_tok_ctx *c, const char *s, size_t n)
{
    const qp_tokenizer *t = c->t;
    qp_tok_entry *e = qp_tok_vocab_find(&t->vocab, s, n, QP_TOK_PIECE);
    if (e && (t->ignore_merges || atomic_load_explicit(&e->state, memory_order_relaxed) == QP_TOK_WHOLE))
        return qp_tok_push(c, e->id);
    if (t->byte_level ? t->all_bytes && !is_ascii(s, n) : true) return encode_cut(c, s, n);
    return encode_unit(c, s, n);
}
