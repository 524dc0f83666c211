/* GGUF reader: see gguf.h. Everything is bounded by the file: a count is compared with the bytes that are left before
 * it sizes anything. Values stay in the mapping; a metadata entry keeps where its value lies. */
#include "io/gguf.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/checked.h"
#include "base/num.h"
#include "base/utf8.h"
#include "io/map.h"
#include "io/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KV = 1 << 16, MAX_ARRAY_DEPTH = 4, MAX_ALIGNMENT = 1 << 20, DEFAULT_ALIGNMENT = 32 };
enum { T_U8, T_I8, T_U16, T_I16, T_U32, T_I32, T_F32, T_BOOL, T_STRING, T_ARRAY, T_U64, T_I64, T_F64 };

typedef struct {
    const char *key;
    uint32_t type, elem_type; /* elem_type of an array */
    uint64_t count;           /* elements of an array */
    const unsigned char *data;
    size_t n_bytes; /* of the scalar, the string's text, or the packed elements */
} entry;

struct qp_gguf {
    char *name;
    qp_map map;
    entry *kv; /* sorted by key */
    size_t n_kv;
    qp_gguf_tensor *tensors;        /* file order */
    const qp_gguf_tensor **by_name; /* sorted */
    size_t n_tensors;
    qp_arena arena; /* names */
};

static const qp_ggml_type ggml_types[] = {
    {QP_GGML_F32, "F32", 1, 4},
    {QP_GGML_F16, "F16", 1, 2},
    {QP_GGML_BF16, "BF16", 1, 2},
    {QP_GGML_Q4_0, "Q4_0", 32, 18},
    {QP_GGML_Q4_1, "Q4_1", 32, 20},
    {QP_GGML_Q5_0, "Q5_0", 32, 22},
    {QP_GGML_Q5_1, "Q5_1", 32, 24},
    {QP_GGML_Q8_0, "Q8_0", 32, 34},
    {QP_GGML_Q4_K, "Q4_K", 256, 144},
    {QP_GGML_Q5_K, "Q5_K", 256, 176},
    {QP_GGML_Q6_K, "Q6_K", 256, 210},
    {9, "Q8_1", 0, 0},
    {10, "Q2_K", 0, 0},
    {11, "Q3_K", 0, 0},
    {15, "Q8_K", 0, 0},
    {16, "IQ2_XXS", 0, 0},
    {17, "IQ2_XS", 0, 0},
    {18, "IQ3_XXS", 0, 0},
    {19, "IQ1_S", 0, 0},
    {20, "IQ4_NL", 0, 0},
    {21, "IQ3_S", 0, 0},
    {22, "IQ2_S", 0, 0},
    {23, "IQ4_XS", 0, 0},
    {24, "I8", 0, 0},
    {25, "I16", 0, 0},
    {26, "I32", 0, 0},
    {27, "I64", 0, 0},
    {28, "F64", 0, 0},
    {29, "IQ1_M", 0, 0},
    {34, "TQ1_0", 0, 0},
    {35, "TQ2_0", 0, 0},
    {39, "MXFP4", 0, 0},
};

const qp_ggml_type *qp_ggml_type_find(uint32_t id)
{
    for (size_t i = 0; i < sizeof ggml_types / sizeof *ggml_types; i++)
        if (ggml_types[i].id == id) return &ggml_types[i];
    return NULL;
}

static qp_status no_memory(const qp_gguf *g, qp_err *err)
{
    return qp_fail(err, QP_ENOMEM, "%s: no memory for its metadata", g->name);
}

static qp_status truncated(const qp_gguf *g, const qp_reader *r, const char *what, qp_err *err)
{
    return qp_fail(err, QP_EFORMAT, "%s: truncated in %s: the file has %zu bytes", g->name, what, r->len);
}

static bool utf8_ok(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        int32_t cp;
        i += qp_utf8_decode(s + i, n - i, &cp);
        if (cp < 0) return false;
    }
    return true;
}

/* Bytes of one scalar; 0 for strings, arrays and unknown types. */
static size_t scalar_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

/* A key or a tensor's name: 1..QP_MAX_NAME_BYTES of UTF-8 without NUL, copied and terminated. */
static qp_status read_name(qp_gguf *g, qp_reader *r, const char *what, const char **out, qp_err *err)
{
    uint64_t n = qp_reader_u64(r);
    if (!r->failed && n > qp_reader_left(r)) r->failed = true;
    if (r->failed) return truncated(g, r, what, err);
    if (!n || n > QP_MAX_NAME_BYTES)
        return qp_fail(err, QP_EFORMAT, "%s: %s of %llu bytes at byte %zu, must have 1..%d", g->name, what,
                       (unsigned long long)n, r->pos, QP_MAX_NAME_BYTES);
    const char *s = qp_reader_bytes(r, n);
    if (!s || memchr(s, 0, n) || !utf8_ok(s, n))
        return qp_fail(err, QP_EFORMAT, "%s: %s before byte %zu is not UTF-8 without NUL", g->name, what, r->pos);
    *out = qp_arena_strndup(&g->arena, s, n);
    return *out ? QP_OK : no_memory(g, err);
}

/* Moves r over the `count` elements of an array; sets r->failed when the file ends before. */
static qp_status skip_elements(qp_gguf *g, qp_reader *r, const char *key, uint32_t type, uint64_t count, unsigned depth,
                               qp_err *err)
{
    size_t size = scalar_bytes(type), bytes;
    if (size) {
        if (!qp_mul_ok(count, size, &bytes) || !qp_reader_bytes(r, bytes)) r->failed = true;
        return QP_OK;
    }
    if (type != T_STRING && type != T_ARRAY)
        return qp_fail(err, QP_EFORMAT, "%s: %s: array of unknown type %u", g->name, key, type);
    if (type == T_ARRAY && depth == MAX_ARRAY_DEPTH)
        return qp_fail(err, QP_EFORMAT, "%s: %s: arrays nested deeper than %d", g->name, key, MAX_ARRAY_DEPTH);
    /* Each element takes 8 bytes or more, so the loop is bounded by the file. */
    for (uint64_t i = 0; i < count && !r->failed; i++) {
        if (type == T_STRING) {
            qp_reader_bytes(r, qp_reader_u64(r));
        } else {
            uint32_t elem = qp_reader_u32(r);
            uint64_t n = qp_reader_u64(r);
            if (!r->failed) QP_TRY(skip_elements(g, r, key, elem, n, depth + 1, err));
        }
    }
    return QP_OK;
}

static qp_status read_entry(qp_gguf *g, qp_reader *r, entry *e, qp_err *err)
{
    QP_TRY(read_name(g, r, "a metadata key", &e->key, err));
    e->type = qp_reader_u32(r);
    if (r->failed) return truncated(g, r, e->key, err);
    size_t size = scalar_bytes(e->type);
    if (size) {
        e->n_bytes = size;
        e->data = qp_reader_bytes(r, size);
    } else if (e->type == T_STRING) {
        uint64_t n = qp_reader_u64(r);
        e->n_bytes = n;
        e->data = qp_reader_bytes(r, n);
    } else if (e->type == T_ARRAY) {
        e->elem_type = qp_reader_u32(r);
        e->count = qp_reader_u64(r);
        size_t start = r->pos;
        e->data = qp_reader_bytes(r, 0);
        if (!r->failed) QP_TRY(skip_elements(g, r, e->key, e->elem_type, e->count, 1, err));
        e->n_bytes = r->pos - start;
    } else {
        return qp_fail(err, QP_EFORMAT, "%s: %s: unknown value type %u", g->name, e->key, e->type);
    }
    return r->failed ? truncated(g, r, e->key, err) : QP_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->key, ((const entry *)b)->key);
}

static qp_status read_metadata(qp_gguf *g, qp_reader *r, uint64_t n, qp_err *err)
{
    enum { MIN_BYTES = 8 + 1 + 4 + 1 };
    if (n > MAX_KV || n > qp_reader_left(r) / MIN_BYTES)
        return qp_fail(err, QP_EFORMAT, "%s: %llu metadata entries, at most %d in %zu bytes", g->name,
                       (unsigned long long)n, MAX_KV, r->len);
    QP_TRY(qp_new(&g->kv, n, sizeof *g->kv, g->name, err));
    for (uint64_t i = 0; i < n; i++) QP_TRY(read_entry(g, r, &g->kv[i], err));
    if (n) qsort(g->kv, n, sizeof *g->kv, by_key);
    g->n_kv = n;
    for (uint64_t i = 1; i < n; i++)
        if (strcmp(g->kv[i - 1].key, g->kv[i].key) == 0)
            return qp_fail(err, QP_EFORMAT, "%s: metadata key %s is given twice", g->name, g->kv[i].key);
    return QP_OK;
}

static qp_status check_type(const qp_gguf *g, const qp_gguf_tensor *t, uint32_t id, qp_err *err)
{
    static const char remedy[] =
        "supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K: get the "
        "model as Q8_0, Q6_K, Q5_K_M or Q4_K_M, or make one with llama-quantize --allow-requantize";
    if (!t->type) return qp_fail(err, QP_EUNSUPPORTED, "%s: %s: tensor type %u; %s", g->name, t->name, id, remedy);
    if (!t->type->block)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: %s: tensor type %s; %s", g->name, t->name, t->type->name, remedy);
    return QP_OK;
}

/* One tensor entry; its offset goes to *offset. */
static qp_status read_tensor(qp_gguf *g, qp_reader *r, qp_gguf_tensor *t, uint64_t *offset, qp_err *err)
{
    QP_TRY(read_name(g, r, "a tensor name", &t->name, err));
    t->rank = qp_reader_u32(r);
    if (r->failed) return truncated(g, r, t->name, err);
    if (t->rank < 1 || t->rank > QP_MAX_RANK)
        return qp_fail(err, QP_EFORMAT, "%s: %s: %u dimensions, must be 1..%d", g->name, t->name, t->rank, QP_MAX_RANK);
    for (uint32_t i = t->rank; i-- > 0;) t->shape[i] = qp_reader_u64(r);
    uint32_t id = qp_reader_u32(r);
    *offset = qp_reader_u64(r);
    if (r->failed) return truncated(g, r, t->name, err);
    t->type = qp_ggml_type_find(id);
    QP_TRY(check_type(g, t, id, err));
    t->row_len = t->shape[t->rank - 1];
    if (t->row_len < 1 || t->row_len > QP_MAX_DIM || t->row_len % t->type->block)
        return qp_fail(err, QP_EFORMAT, "%s: %s: rows of %zu weights, must be 1..%u and a multiple of %u for %s",
                       g->name, t->name, t->row_len, QP_MAX_DIM, t->type->block, t->type->name);
    t->row_bytes = t->row_len / t->type->block * t->type->block_bytes;
    t->n_rows = 1;
    for (uint32_t i = 0; i + 1 < t->rank; i++)
        if (!t->shape[i] || !qp_mul_ok(t->n_rows, t->shape[i], &t->n_rows))
            return qp_fail(err, QP_EFORMAT, "%s: %s: dimension %u is %llu: empty, or the product overflows", g->name,
                           t->name, t->rank - 1 - i, (unsigned long long)t->shape[i]);
    return QP_OK;
}

static int by_tensor_name(const void *a, const void *b)
{
    return strcmp((*(const qp_gguf_tensor *const *)a)->name, (*(const qp_gguf_tensor *const *)b)->name);
}

static int by_data(const void *a, const void *b)
{
    const unsigned char *x = (*(const qp_gguf_tensor *const *)a)->data, *y = (*(const qp_gguf_tensor *const *)b)->data;
    return (x > y) - (x < y);
}

/* Tensors share no bytes (each has some), so what an import writes is bounded by the file. by_name is used as scratch
 * and left sorted by name. */
static qp_status check_distinct(qp_gguf *g, qp_err *err)
{
    size_t n = g->n_tensors;
    for (size_t i = 0; i < n; i++) g->by_name[i] = &g->tensors[i];
    if (n) qsort(g->by_name, n, sizeof *g->by_name, by_data);
    for (size_t i = 1; i < n; i++) {
        const qp_gguf_tensor *a = g->by_name[i - 1], *b = g->by_name[i];
        if ((size_t)(b->data - a->data) < a->n_rows * a->row_bytes)
            return qp_fail(err, QP_EFORMAT, "%s: the data of %s and %s overlap", g->name, a->name, b->name);
    }
    if (n) qsort(g->by_name, n, sizeof *g->by_name, by_tensor_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(g->by_name[i - 1]->name, g->by_name[i]->name) == 0)
            return qp_fail(err, QP_EFORMAT, "%s: tensor %s is named twice", g->name, g->by_name[i]->name);
    return QP_OK;
}

/* Turns offsets into addresses: aligned, inside the data area, which begins at the next multiple of the alignment. */
static qp_status bind_tensors(qp_gguf *g, qp_reader *r, const uint64_t *offsets, qp_err *err)
{
    static const uint64_t default_alignment = DEFAULT_ALIGNMENT;
    uint64_t align;
    size_t base;
    QP_TRY(qp_gguf_get_u64(g, "general.alignment", 1, MAX_ALIGNMENT, &default_alignment, &align, err));
    if (align & (align - 1))
        return qp_fail(err, QP_EFORMAT, "%s: general.alignment is %llu, must be a power of two", g->name,
                       (unsigned long long)align);
    if (!g->n_tensors) return QP_OK;
    if (!qp_round_up_ok(r->pos, align, &base) || !qp_reader_bytes(r, base - r->pos))
        return truncated(g, r, "the padding before the tensor data", err);
    size_t area = qp_reader_left(r);
    const unsigned char *data = qp_reader_bytes(r, area);
    for (size_t i = 0; i < g->n_tensors; i++) {
        qp_gguf_tensor *t = &g->tensors[i];
        size_t bytes;
        if (offsets[i] % align)
            return qp_fail(err, QP_EFORMAT, "%s: %s: offset %llu, must be a multiple of %llu", g->name, t->name,
                           (unsigned long long)offsets[i], (unsigned long long)align);
        if (!qp_mul_ok(t->n_rows, t->row_bytes, &bytes) || offsets[i] > area || bytes > area - offsets[i])
            return qp_fail(err, QP_EFORMAT,
                           "%s: %s: %zu rows of %zu bytes at offset %llu, the file has %zu bytes of data", g->name,
                           t->name, t->n_rows, t->row_bytes, (unsigned long long)offsets[i], area);
        t->data = data + offsets[i];
    }
    return check_distinct(g, err);
}

static qp_status read_tensors(qp_gguf *g, qp_reader *r, uint64_t n, qp_err *err)
{
    uint64_t *offsets;
    QP_TRY(qp_new(&g->tensors, n, sizeof *g->tensors, g->name, err));
    QP_TRY(qp_new(&g->by_name, n, sizeof *g->by_name, g->name, err));
    QP_TRY(qp_new(&offsets, n, sizeof *offsets, g->name, err));
    g->n_tensors = n;
    qp_status st = QP_OK;
    for (uint64_t i = 0; i < n && st == QP_OK; i++) st = read_tensor(g, r, &g->tensors[i], &offsets[i], err);
    if (st == QP_OK) st = bind_tensors(g, r, offsets, err);
    qp_free(offsets);
    return st;
}

static qp_status check_split(const qp_gguf *g, qp_err *err)
{
    static const uint64_t one = 1;
    uint64_t n;
    QP_TRY(qp_gguf_get_u64(g, "split.count", 0, UINT64_MAX, &one, &n, err));
    if (n > 1)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: one part of %llu; join them first with llama-gguf-split --merge",
                       g->name, (unsigned long long)n);
    return QP_OK;
}

static qp_status read_all(qp_gguf *g, const void *data, size_t len, qp_err *err)
{
    enum { MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8 };
    qp_reader r;
    qp_reader_init(&r, data, len);
    const char *magic = qp_reader_bytes(&r, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return qp_fail(err, QP_EFORMAT, "%s: does not begin with \"GGUF\"", g->name);
    uint32_t version = qp_reader_u32(&r);
    uint64_t n_tensors = qp_reader_u64(&r), n_kv = qp_reader_u64(&r);
    if (r.failed) return truncated(g, &r, "its first 24 bytes", err);
    if (version == 0x02000000u || version == 0x03000000u)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: a big-endian GGUF; get the little-endian one", g->name);
    if (version != 2 && version != 3)
        return qp_fail(err, QP_EUNSUPPORTED, "%s: GGUF version %u, supported are 2 and 3", g->name, version);
    if (n_tensors > QP_MAX_TENSORS || n_tensors > qp_reader_left(&r) / MIN_TENSOR_BYTES)
        return qp_fail(err, QP_EFORMAT, "%s: %llu tensors, at most %zu in %zu bytes", g->name,
                       (unsigned long long)n_tensors, QP_MAX_TENSORS, len);
    QP_TRY(read_metadata(g, &r, n_kv, err));
    QP_TRY(check_split(g, err));
    return read_tensors(g, &r, n_tensors, err);
}

static qp_status gguf_new(qp_gguf **out, const char *name, qp_err *err)
{
    qp_gguf *g = NULL;
    QP_TRY(qp_new(&g, 1, sizeof *g, name, err));
    qp_arena_init(&g->arena, 0);
    g->name = qp_strdup(name);
    if (!g->name) {
        qp_free(g);
        return qp_fail(err, QP_ENOMEM, "%s: no memory for its metadata", name);
    }
    *out = g;
    return QP_OK;
}

static qp_status finish(qp_gguf **out, qp_gguf *g, qp_status st)
{
    if (st == QP_OK)
        *out = g;
    else
        qp_gguf_close(g);
    return st;
}

qp_status qp_gguf_open(qp_gguf **out, const char *path, qp_err *err)
{
    qp_gguf *g = NULL;
    QP_TRY(gguf_new(&g, path, err));
    qp_status st = qp_map_open(&g->map, path, err);
    if (st == QP_OK) st = read_all(g, g->map.data, g->map.len, err);
    return finish(out, g, st);
}

qp_status qp_gguf_open_bytes(qp_gguf **out, const void *data, size_t len, const char *name, qp_err *err)
{
    qp_gguf *g = NULL;
    QP_TRY(gguf_new(&g, name, err));
    return finish(out, g, read_all(g, data, len, err));
}

void qp_gguf_close(qp_gguf *g)
{
    if (!g) return;
    qp_map_close(&g->map);
    qp_free(g->kv);
    qp_free(g->tensors);
    qp_free(g->by_name);
    qp_arena_deinit(&g->arena);
    qp_free(g->name);
    qp_free(g);
}

const char *qp_gguf_name(const qp_gguf *g)
{
    return g->name;
}

size_t qp_gguf_n_tensors(const qp_gguf *g)
{
    return g->n_tensors;
}

const qp_gguf_tensor *qp_gguf_tensor_at(const qp_gguf *g, size_t i)
{
    return &g->tensors[i];
}

const qp_gguf_tensor *qp_gguf_tensor_find(const qp_gguf *g, const char *name)
{
    size_t lo = 0, hi = g->n_tensors;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int cmp = strcmp(g->by_name[mid]->name, name);
        if (cmp == 0) return g->by_name[mid];
        if (cmp < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static const entry *find(const qp_gguf *g, const char *key)
{
    const entry want = {.key = key};
    return g->n_kv ? bsearch(&want, g->kv, g->n_kv, sizeof *g->kv, by_key) : NULL;
}

const char *qp_gguf_key_at(const qp_gguf *g, size_t i)
{
    return i < g->n_kv ? g->kv[i].key : NULL;
}

bool qp_gguf_has(const qp_gguf *g, const char *key)
{
    return find(g, key) != NULL;
}

static qp_status missing(const qp_gguf *g, const char *key, qp_err *err)
{
    return qp_fail(err, QP_EFORMAT, "%s: metadata key %s is missing", g->name, key);
}

static qp_status wrong_type(const qp_gguf *g, const entry *e, const char *want, qp_err *err)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return qp_fail(err, QP_EFORMAT, "%s: %s is %s%s, must be %s", g->name, e->key, names[e->type],
                   e->type == T_ARRAY ? " of another kind" : "", want);
}

/* The i-th integer of type `type` at data, as 64 bits with its sign in *negative; false for other types. */
static bool integer_at(const unsigned char *data, uint32_t type, size_t i, uint64_t *out, bool *negative)
{
    bool is_signed = type == T_I8 || type == T_I16 || type == T_I32 || type == T_I64;
    size_t size = scalar_bytes(type);
    if (!size || type == T_F32 || type == T_F64 || type == T_BOOL) return false;
    qp_reader r;
    qp_reader_init(&r, data + i * size, size);
    uint64_t v = qp_reader_uint_le(&r, size);
    *negative = is_signed && (v >> (8 * size - 1) & 1);
    if (*negative && size < 8) v |= UINT64_MAX << 8 * size;
    *out = v;
    return true;
}

qp_status qp_gguf_get_u64(const qp_gguf *g, const char *key, uint64_t lo, uint64_t hi, const uint64_t *fallback,
                          uint64_t *out, qp_err *err)
{
    const entry *e = find(g, key);
    uint64_t v;
    bool negative;
    if (!e) {
        if (!fallback) return missing(g, key, err);
        *out = *fallback;
        return QP_OK;
    }
    if (!integer_at(e->data, e->type, 0, &v, &negative)) return wrong_type(g, e, "an integer", err);
    if (negative)
        return qp_fail(err, QP_EFORMAT, "%s: %s is %lld, must be %llu..%llu", g->name, key, (long long)v,
                       (unsigned long long)lo, (unsigned long long)hi);
    if (v < lo || v > hi)
        return qp_fail(err, QP_EFORMAT, "%s: %s is %llu, must be %llu..%llu", g->name, key, (unsigned long long)v,
                       (unsigned long long)lo, (unsigned long long)hi);
    *out = v;
    return QP_OK;
}

static float f32_at(const unsigned char *data, size_t i)
{
    qp_reader r;
    qp_reader_init(&r, data + 4 * i, 4);
    return qp_f32_from_bits(qp_reader_u32(&r));
}

qp_status qp_gguf_get_f32(const qp_gguf *g, const char *key, const float *fallback, float *out, qp_err *err)
{
    const entry *e = find(g, key);
    if (!e) {
        if (!fallback) return missing(g, key, err);
        *out = *fallback;
        return QP_OK;
    }
    if (e->type != T_F32) return wrong_type(g, e, "f32", err);
    float f = f32_at(e->data, 0);
    if (!isfinite(f)) return qp_fail(err, QP_EFORMAT, "%s: %s is not finite", g->name, key);
    *out = f;
    return QP_OK;
}

qp_status qp_gguf_get_bool(const qp_gguf *g, const char *key, const bool *fallback, bool *out, qp_err *err)
{
    const entry *e = find(g, key);
    if (!e) {
        if (!fallback) return missing(g, key, err);
        *out = *fallback;
        return QP_OK;
    }
    if (e->type != T_BOOL) return wrong_type(g, e, "bool", err);
    if (e->data[0] > 1) return qp_fail(err, QP_EFORMAT, "%s: %s is %u, must be 0 or 1", g->name, key, e->data[0]);
    *out = e->data[0];
    return QP_OK;
}

qp_status qp_gguf_get_str(const qp_gguf *g, const char *key, bool optional, qp_gguf_str *out, qp_err *err)
{
    const entry *e = find(g, key);
    if (!e) {
        if (!optional) return missing(g, key, err);
        *out = (qp_gguf_str){NULL, 0};
        return QP_OK;
    }
    if (e->type != T_STRING) return wrong_type(g, e, "a string", err);
    if (!utf8_ok((const char *)e->data, e->n_bytes))
        return qp_fail(err, QP_EFORMAT, "%s: %s is not valid UTF-8", g->name, key);
    *out = (qp_gguf_str){(const char *)e->data, e->n_bytes};
    return QP_OK;
}

qp_status qp_gguf_get_strs_new(const qp_gguf *g, const char *key, qp_gguf_str **out, size_t *n, qp_err *err)
{
    const entry *e = find(g, key);
    qp_gguf_str *v;
    if (!e) return missing(g, key, err);
    if (e->type != T_ARRAY || e->elem_type != T_STRING) return wrong_type(g, e, "an array of strings", err);
    QP_TRY(qp_new(&v, e->count, sizeof *v, key, err)); /* count * 8 bytes were seen in the file */
    qp_reader r;
    qp_reader_init(&r, e->data, e->n_bytes);
    for (uint64_t i = 0; i < e->count; i++) {
        v[i].n = qp_reader_u64(&r);
        v[i].s = qp_reader_bytes(&r, v[i].n);
        if (v[i].s && utf8_ok(v[i].s, v[i].n)) continue;
        qp_free(v);
        return qp_fail(err, QP_EFORMAT, "%s: %s[%llu] is not valid UTF-8", g->name, key, (unsigned long long)i);
    }
    *out = v;
    *n = e->count;
    return QP_OK;
}

static qp_status find_array(const qp_gguf *g, const char *key, size_t n, const entry **out, qp_err *err)
{
    const entry *e = find(g, key);
    if (!e) return missing(g, key, err);
    if (e->type != T_ARRAY) return wrong_type(g, e, "an array", err);
    if (e->count != n)
        return qp_fail(err, QP_EFORMAT, "%s: %s has %llu elements, must have %zu", g->name, key,
                       (unsigned long long)e->count, n);
    *out = e;
    return QP_OK;
}

qp_status qp_gguf_get_i32s_new(const qp_gguf *g, const char *key, size_t n, int32_t **out, qp_err *err)
{
    const entry *e = NULL;
    int32_t *v;
    QP_TRY(find_array(g, key, n, &e, err));
    QP_TRY(qp_new(&v, n, sizeof *v, key, err));
    for (size_t i = 0; i < n; i++) {
        uint64_t u;
        bool negative;
        if (!integer_at(e->data, e->elem_type, i, &u, &negative)) {
            qp_free(v);
            return wrong_type(g, e, "an array of integers", err);
        }
        if (negative ? (int64_t)u < INT32_MIN : u > INT32_MAX) {
            qp_free(v);
            return qp_fail(err, QP_EFORMAT, "%s: %s[%zu] does not fit 32 bits", g->name, key, i);
        }
        v[i] = (int32_t)(int64_t)u;
    }
    *out = v;
    return QP_OK;
}

qp_status qp_gguf_get_f32s_new(const qp_gguf *g, const char *key, size_t n, float **out, qp_err *err)
{
    const entry *e = NULL;
    float *v;
    QP_TRY(find_array(g, key, n, &e, err));
    if (e->elem_type != T_F32) return wrong_type(g, e, "an array of f32", err);
    QP_TRY(qp_new(&v, n, sizeof *v, key, err));
    for (size_t i = 0; i < n; i++) {
        v[i] = f32_at(e->data, i);
        if (isfinite(v[i])) continue;
        qp_free(v);
        return qp_fail(err, QP_EFORMAT, "%s: %s[%zu] is not finite", g->name, key, i);
    }
    *out = v;
    return QP_OK;
}
