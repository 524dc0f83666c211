/* GGUF tokenizers: see gguf_tokenizer.h.
 *
 * Model "gpt2" is byte-level BPE, carried over as it is; the pre-tokenizer is named by a key. Model "llama" is
 * SentencePiece BPE, which has scores and no merges: a merge is every cut of a piece into two pieces of the vocabulary,
 * ranked by the piece's score, then the longer left half, the longer right half, and the id. (The rebuilt list gives
 * the ids of the SentencePiece library; formats/gguf_import.md.) */
#include "quant/gguf_tokenizer.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/clock.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };
enum { MAX_PIECE_BYTES = 512 }; /* SentencePiece: each cut is looked up, so length is work squared */
static const uint32_t EMPTY = UINT32_MAX;

typedef struct {
    const qp_gguf *g;
    qp_gguf_str *tokens;
    int32_t *types;
    float *scores; /* SentencePiece alone */
    size_t n;
    bool spm, add_bos, add_eos, space_prefix;
    uint64_t bos, eos, pad, unk; /* UINT64_MAX: none */
    uint32_t *slots;             /* hash table over the tokens; of equal ones the last id is kept */
    size_t mask;
    uint64_t seed;
    qp_arena arena; /* tokens that were rewritten */
} vocabulary;

typedef struct {
    float score;
    uint32_t left, right; /* lengths in code points */
    uint32_t id, cut;     /* the piece, and its left half's bytes */
} merge;

/* ---- vocabulary ---- */

/* The seed is drawn a run, so that a file cannot be made whose tokens all meet in one slot. */
static uint64_t hash(const vocabulary *v, const char *s, size_t n)
{
    uint64_t h = v->seed ^ n * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t w = 0;
        memcpy(&w, s + i, n - i < 8 ? n - i : 8);
        h = (h ^ w) * 0xBF58476D1CE4E5B9u;
        h ^= h >> 29;
    }
    h *= 0x94D049BB133111EBu;
    return h ^ h >> 32;
}

/* The slot that holds the token, or the empty one where it would go. */
static size_t find_slot(const vocabulary *v, const char *s, size_t n)
{
    size_t at = (size_t)hash(v, s, n) & v->mask;
    for (; v->slots[at] != EMPTY; at = (at + 1) & v->mask) {
        const qp_gguf_str *t = &v->tokens[v->slots[at]];
        if (t->n == n && memcmp(t->s, s, n) == 0) break;
    }
    return at;
}

static bool has_token(const vocabulary *v, const char *s, size_t n)
{
    return v->slots[find_slot(v, s, n)] != EMPTY;
}

static qp_status build_index(vocabulary *v, qp_err *err)
{
    size_t size = 16;
    while (size < v->n * 2) size *= 2;
    QP_TRY(qp_new(&v->slots, size, sizeof *v->slots, "tokenizer vocabulary", err));
    memset(v->slots, 0xFF, size * sizeof *v->slots);
    v->mask = size - 1;
    v->seed = qp_clock_ns() * 0x9E3779B97F4A7C15u ^ (uint64_t)(uintptr_t)v->slots;
    for (size_t i = 0; i < v->n; i++) v->slots[find_slot(v, v->tokens[i].s, v->tokens[i].n)] = (uint32_t)i;
    return QP_OK;
}

/* User-defined pieces are stored with plain spaces: U+2581 is put back. */
static qp_status restore_spaces(vocabulary *v, qp_err *err)
{
    for (size_t i = 0; i < v->n; i++) {
        qp_gguf_str *t = &v->tokens[i];
        size_t spaces = 0, at = 0;
        for (size_t k = 0; k < t->n; k++) spaces += t->s[k] == ' ';
        if (v->types[i] != TYPE_USER || !spaces) continue;
        char *s = qp_arena_alloc(&v->arena, t->n + 2 * spaces);
        if (!s) return qp_fail(err, QP_ENOMEM, "tokenizer vocabulary: no memory for token %zu", i);
        for (size_t k = 0; k < t->n; k++) {
            if (t->s[k] == ' ') {
                memcpy(s + at, "\xE2\x96\x81", 3);
                at += 3;
            } else {
                s[at++] = t->s[k];
            }
        }
        *t = (qp_gguf_str){s, at};
    }
    return QP_OK;
}

static qp_status read_model_kind(vocabulary *v, qp_err *err)
{
    qp_gguf_str s;
    QP_TRY(qp_gguf_get_str(v->g, "tokenizer.ggml.model", false, &s, err));
    v->spm = s.n == 5 && memcmp(s.s, "llama", 5) == 0;
    if (!v->spm && !(s.n == 4 && memcmp(s.s, "gpt2", 4) == 0))
        return qp_fail(err, QP_EUNSUPPORTED, "%s: tokenizer.ggml.model is \"%.*s\", supported are gpt2 and llama",
                       qp_gguf_name(v->g), (int)(s.n < 40 ? s.n : 40), s.s);
    return QP_OK;
}

static qp_status read_options(vocabulary *v, qp_err *err)
{
    static const uint64_t none = UINT64_MAX;
    static const bool yes = true, no = false;
    uint64_t last = v->n - 1;
    QP_TRY(qp_gguf_get_bool(v->g, "tokenizer.ggml.add_bos_token", &v->spm, &v->add_bos, err));
    QP_TRY(qp_gguf_get_bool(v->g, "tokenizer.ggml.add_eos_token", &no, &v->add_eos, err));
    QP_TRY(qp_gguf_get_bool(v->g, "tokenizer.ggml.add_space_prefix", &yes, &v->space_prefix, err));
    QP_TRY(qp_gguf_get_u64(v->g, "tokenizer.ggml.bos_token_id", 0, last, &none, &v->bos, err));
    QP_TRY(qp_gguf_get_u64(v->g, "tokenizer.ggml.eos_token_id", 0, last, &none, &v->eos, err));
    QP_TRY(qp_gguf_get_u64(v->g, "tokenizer.ggml.padding_token_id", 0, last, &none, &v->pad, err));
    return qp_gguf_get_u64(v->g, "tokenizer.ggml.unknown_token_id", 0, last, &none, &v->unk, err);
}

static qp_status read_vocabulary(vocabulary *v, const qp_gguf_model *m, qp_err *err)
{
    QP_TRY(read_model_kind(v, err));
    QP_TRY(qp_gguf_get_strs_new(v->g, "tokenizer.ggml.tokens", &v->tokens, &v->n, err));
    if (v->n < 1 || v->n > m->vocab)
        return qp_fail(err, QP_EFORMAT, "%s: tokenizer.ggml.tokens has %zu elements, token_embd.weight %llu rows",
                       qp_gguf_name(v->g), v->n, (unsigned long long)m->vocab);
    QP_TRY(qp_gguf_get_i32s_new(v->g, "tokenizer.ggml.token_type", v->n, &v->types, err));
    for (size_t i = 0; i < v->n; i++)
        if (v->types[i] < TYPE_NORMAL || v->types[i] > TYPE_BYTE)
            return qp_fail(err, QP_EFORMAT, "%s: tokenizer.ggml.token_type[%zu] is %d, must be 1..6",
                           qp_gguf_name(v->g), i, v->types[i]);
    QP_TRY(read_options(v, err));
    if (v->spm) {
        QP_TRY(qp_gguf_get_f32s_new(v->g, "tokenizer.ggml.scores", v->n, &v->scores, err));
        QP_TRY(restore_spaces(v, err));
    }
    return build_index(v, err);
}

static void vocabulary_deinit(vocabulary *v)
{
    qp_free(v->tokens);
    qp_free(v->types);
    qp_free(v->scores);
    qp_free(v->slots);
    qp_arena_deinit(&v->arena);
}

/* ---- merges ---- */

static int by_rank(const void *a, const void *b)
{
    const merge *x = a, *y = b;
    if (x->score > y->score || x->score < y->score) return x->score > y->score ? -1 : 1;
    if (x->left != y->left) return x->left > y->left ? -1 : 1;
    if (x->right != y->right) return x->right > y->right ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static bool starts_code_point(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

/* Calls for every cut of piece i into two pieces; fills list when it is not NULL. Returns their number. */
static size_t cut_piece(const vocabulary *v, size_t i, merge *list)
{
    const qp_gguf_str *t = &v->tokens[i];
    uint32_t n_chars = 0, left = 1;
    size_t n = 0;
    for (size_t k = 0; k < t->n; k++) n_chars += starts_code_point(t->s[k]);
    for (size_t cut = 1; cut < t->n; cut++) {
        if (!starts_code_point(t->s[cut])) continue;
        if (has_token(v, t->s, cut) && has_token(v, t->s + cut, t->n - cut)) {
            float score = v->types[i] == TYPE_USER ? 0 : v->scores[i];
            if (list) list[n] = (merge){score, left, n_chars - left, (uint32_t)i, (uint32_t)cut};
            n++;
        }
        left++;
    }
    return n;
}

static void add_pair(qp_buf *b, const char *left, size_t n_left, const char *right, size_t n_right, bool first)
{
    qp_buf_adds(b, first ? "\n[" : ",\n[");
    qp_json_add_str(b, left, n_left);
    qp_buf_addc(b, ',');
    qp_json_add_str(b, right, n_right);
    qp_buf_addc(b, ']');
}

static qp_status add_spm_merges(const vocabulary *v, qp_buf *b, size_t *n_merges, qp_err *err)
{
    size_t n = 0, cap = 0;
    merge *list = NULL;
    qp_status st = QP_OK;
    for (size_t i = 0; i < v->n && st == QP_OK; i++) {
        if (v->types[i] != TYPE_NORMAL && v->types[i] != TYPE_USER) continue;
        if (v->tokens[i].n > MAX_PIECE_BYTES) {
            st = qp_fail(err, QP_ELIMIT, "%s: tokenizer.ggml.tokens[%zu] has %zu bytes, at most %d", qp_gguf_name(v->g),
                         i, v->tokens[i].n, MAX_PIECE_BYTES);
            break;
        }
        if (cap - n < v->tokens[i].n) { /* room for every cut of this piece */
            size_t want = cap * 2 + v->tokens[i].n + 1024;
            merge *p = qp_realloc(list, n * sizeof *p, want * sizeof *p);
            if (!p) {
                st = qp_fail(err, QP_ENOMEM, "tokenizer merges: no memory for %zu", want);
                break;
            }
            list = p;
            cap = want;
        }
        n += cut_piece(v, i, list + n);
    }
    if (st == QP_OK && n) qsort(list, n, sizeof *list, by_rank);
    for (size_t k = 0; k < n && st == QP_OK && !b->failed; k++) {
        const qp_gguf_str *t = &v->tokens[list[k].id];
        add_pair(b, t->s, list[k].cut, t->s + list[k].cut, t->n - list[k].cut, k == 0);
    }
    qp_free(list);
    *n_merges = n;
    return st;
}

static qp_status add_bpe_merges(const vocabulary *v, qp_buf *b, size_t *n_merges, qp_err *err)
{
    qp_gguf_str *list;
    qp_status st = QP_OK;
    QP_TRY(qp_gguf_get_strs_new(v->g, "tokenizer.ggml.merges", &list, n_merges, err));
    for (size_t i = 0; i < *n_merges && st == QP_OK && !b->failed; i++) {
        const char *space = memchr(list[i].s, ' ', list[i].n);
        size_t left = space ? (size_t)(space - list[i].s) : 0;
        if (!space)
            st = qp_fail(err, QP_EFORMAT, "%s: tokenizer.ggml.merges[%zu] has no space", qp_gguf_name(v->g), i);
        else
            add_pair(b, list[i].s, left, space + 1, list[i].n - left - 1, i == 0);
    }
    qp_free(list);
    return st;
}

/* ---- tokenizer.json ---- */

static void add_token(qp_buf *b, const qp_gguf_str *t)
{
    qp_json_add_str(b, t->s, t->n);
}

static void add_added_tokens(const vocabulary *v, qp_buf *b)
{
    bool first = true;
    qp_buf_adds(b, "\"added_tokens\":[");
    for (size_t i = 0; i < v->n; i++) {
        if (v->types[i] != TYPE_UNKNOWN && v->types[i] != TYPE_CONTROL && v->types[i] != TYPE_USER) continue;
        qp_buf_printf(b, "%s\n{\"id\":%zu,\"content\":", first ? "" : ",", i);
        add_token(b, &v->tokens[i]);
        qp_buf_printf(b,
                      ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                      v->types[i] == TYPE_USER ? "false" : "true");
        first = false;
    }
    qp_buf_adds(b, "],\n");
}

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define QWEN2_AFTER_DIGITS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* tokenizer.ggml.pre by its name. regex NULL: GPT-2's own split inside ByteLevel. */
static const struct pre_tokenizer {
    const char *name, *regex;
    bool digits, ignore_merges, nfc;
} pre_tokenizers[] = {
    {"gpt-2", NULL, false, false, false},
    {"smollm", NULL, true, false, false},
    {"llama-bpe", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" QWEN2_AFTER_DIGITS, false, true, false},
    {"qwen2", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" QWEN2_AFTER_DIGITS, false, false, true},
    {"qwen35",
     CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
                  "\\s+(?!\\S)|\\s+",
     false, false, true},
};

static qp_status find_pre_tokenizer(const vocabulary *v, const struct pre_tokenizer **out, qp_err *err)
{
    qp_gguf_str s;
    QP_TRY(qp_gguf_get_str(v->g, "tokenizer.ggml.pre", true, &s, err));
    if (!s.s) s = (qp_gguf_str){"gpt-2", 5};
    for (size_t i = 0; i < sizeof pre_tokenizers / sizeof *pre_tokenizers; i++) {
        if (strlen(pre_tokenizers[i].name) == s.n && memcmp(pre_tokenizers[i].name, s.s, s.n) == 0) {
            *out = &pre_tokenizers[i];
            return QP_OK;
        }
    }
    return qp_fail(err, QP_EUNSUPPORTED,
                   "%s: tokenizer.ggml.pre is \"%.*s\", supported are gpt-2, smollm, llama-bpe, qwen2 and qwen35",
                   qp_gguf_name(v->g), (int)(s.n < 40 ? s.n : 40), s.s);
}

#define BYTE_LEVEL(use_regex)                                                                                          \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":" use_regex "}"

static void add_pre_tokenizer(const struct pre_tokenizer *p, qp_buf *b)
{
    qp_buf_adds(b, p->nfc ? "\"normalizer\":{\"type\":\"NFC\"},\n" : "\"normalizer\":null,\n");
    qp_buf_adds(b, "\"pre_tokenizer\":");
    if (p->regex) {
        qp_buf_adds(b, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        qp_json_add_str(b, p->regex, strlen(p->regex));
        qp_buf_adds(b, "},\"behavior\":\"Isolated\",\"invert\":false}," BYTE_LEVEL("false") "]}");
    } else if (p->digits) {
        qp_buf_adds(b, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}," //
                    BYTE_LEVEL("true") "]}");
    } else {
        qp_buf_adds(b, BYTE_LEVEL("true"));
    }
    qp_buf_adds(b, ",\n\"decoder\":" BYTE_LEVEL("true") ",\n");
}

/* Llama 2 style puts one space before the text and strips it from the decoded text; Gemma style does neither. */
static void add_spm_normalizer(const vocabulary *v, qp_buf *b)
{
    static const char replace[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}";
    static const char back[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},"
                               "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}";
    qp_buf_adds(b, "\"normalizer\":");
    if (v->space_prefix)
        qp_buf_printf(
            b, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},%s]}",
            replace);
    else
        qp_buf_adds(b, replace);
    qp_buf_printf(b, ",\n\"pre_tokenizer\":null,\n\"decoder\":{\"type\":\"Sequence\",\"decoders\":[%s%s]},\n", back,
                  v->space_prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
}

static void add_special(const vocabulary *v, qp_buf *b, uint64_t id, int type_id)
{
    qp_buf_adds(b, "{\"SpecialToken\":{\"id\":");
    add_token(b, &v->tokens[id]);
    qp_buf_printf(b, ",\"type_id\":%d}}", type_id);
}

/* One sequence of the template: bos, the text, eos. */
static void add_sequence(const vocabulary *v, qp_buf *b, bool bos, bool eos, int type_id)
{
    if (bos) add_special(v, b, v->bos, type_id);
    qp_buf_printf(b, "%s{\"Sequence\":{\"id\":\"%c\",\"type_id\":%d}}", bos ? "," : "", 'A' + type_id, type_id);
    if (eos) qp_buf_addc(b, ',');
    if (eos) add_special(v, b, v->eos, type_id);
}

static void add_special_entry(const vocabulary *v, qp_buf *b, uint64_t id)
{
    add_token(b, &v->tokens[id]);
    qp_buf_adds(b, ":{\"id\":");
    add_token(b, &v->tokens[id]);
    qp_buf_printf(b, ",\"ids\":[%llu],\"tokens\":[", (unsigned long long)id);
    add_token(b, &v->tokens[id]);
    qp_buf_adds(b, "]}");
}

static void add_post_processor(const vocabulary *v, qp_buf *b)
{
    bool bos = v->add_bos && v->bos != UINT64_MAX, eos = v->add_eos && v->eos != UINT64_MAX;
    qp_buf_adds(b, "\"post_processor\":");
    if (!bos && !eos) {
        qp_buf_adds(b, "null,\n");
        return;
    }
    qp_buf_adds(b, "{\"type\":\"TemplateProcessing\",\"single\":[");
    add_sequence(v, b, bos, eos, 0);
    qp_buf_adds(b, "],\"pair\":[");
    add_sequence(v, b, bos, eos, 0);
    qp_buf_addc(b, ',');
    add_sequence(v, b, bos, eos, 1);
    qp_buf_adds(b, "],\"special_tokens\":{");
    if (bos) add_special_entry(v, b, v->bos);
    if (bos && eos && v->bos != v->eos) qp_buf_addc(b, ',');
    if (eos && !(bos && v->bos == v->eos)) add_special_entry(v, b, v->eos);
    qp_buf_adds(b, "}},\n");
}

static void add_vocab(const vocabulary *v, qp_buf *b)
{
    bool first = true;
    qp_buf_adds(b, "\"vocab\":{");
    for (size_t i = 0; i < v->n; i++) {
        const qp_gguf_str *t = &v->tokens[i];
        if (v->slots[find_slot(v, t->s, t->n)] != i) continue; /* a later token has the same text */
        qp_buf_adds(b, first ? "\n" : ",\n");
        add_token(b, t);
        qp_buf_printf(b, ":%zu", i);
        first = false;
    }
    qp_buf_adds(b, "},\n");
}

static qp_status add_tokenizer(const vocabulary *v, qp_buf *b, size_t *n_merges, qp_err *err)
{
    const struct pre_tokenizer *pre = NULL;
    if (!v->spm) QP_TRY(find_pre_tokenizer(v, &pre, err));
    qp_buf_adds(b, "{\"version\":\"1.0\",\n\"truncation\":null,\n\"padding\":null,\n");
    add_added_tokens(v, b);
    if (v->spm)
        add_spm_normalizer(v, b);
    else
        add_pre_tokenizer(pre, b);
    add_post_processor(v, b);
    qp_buf_adds(b, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    if (v->spm)
        add_token(b, &v->tokens[v->unk == UINT64_MAX ? 0 : v->unk]);
    else
        qp_buf_adds(b, "null");
    qp_buf_printf(
        b,
        ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":%s,\"byte_fallback\":%s,"
        "\"ignore_merges\":%s,\n",
        v->spm ? "true" : "false", v->spm ? "true" : "false", pre && pre->ignore_merges ? "true" : "false");
    add_vocab(v, b);
    qp_buf_adds(b, "\"merges\":[");
    QP_TRY(v->spm ? add_spm_merges(v, b, n_merges, err) : add_bpe_merges(v, b, n_merges, err));
    qp_buf_adds(b, "]}}\n");
    return qp_buf_check(b, "tokenizer.json", err);
}

/* ---- tokenizer_config.json ---- */

static void add_name(const vocabulary *v, qp_buf *b, const char *key, uint64_t id)
{
    if (id == UINT64_MAX) return;
    qp_buf_printf(b, ",\n \"%s\": ", key);
    add_token(b, &v->tokens[id]);
}

/* "chat_template": the one template, or with named ones beside it a list of {name, template}. */
static qp_status add_chat_templates(const vocabulary *v, qp_buf *b, qp_err *err)
{
    static const char key[] = "tokenizer.chat_template", prefix[] = "tokenizer.chat_template.";
    qp_gguf_str text;
    size_t n = 0;
    QP_TRY(qp_gguf_get_str(v->g, key, true, &text, err));
    const qp_gguf_str unnamed = text;
    for (size_t i = 0; qp_gguf_key_at(v->g, i); i++) {
        const char *name = qp_gguf_key_at(v->g, i);
        if (strncmp(name, prefix, sizeof prefix - 1) != 0) continue;
        QP_TRY(qp_gguf_get_str(v->g, name, false, &text, err));
        name += sizeof prefix - 1;
        if (!n++) {
            qp_buf_adds(b, ",\n \"chat_template\": [");
            if (unnamed.s) {
                qp_buf_adds(b, "{\"name\": \"default\", \"template\": ");
                add_token(b, &unnamed);
                qp_buf_adds(b, "}");
            }
        }
        qp_buf_adds(b, n > 1 || unnamed.s ? ",\n  {\"name\": " : "{\"name\": ");
        qp_json_add_str(b, name, strlen(name));
        qp_buf_adds(b, ", \"template\": ");
        add_token(b, &text);
        qp_buf_addc(b, '}');
    }
    if (n) {
        qp_buf_addc(b, ']');
    } else if (unnamed.s) {
        qp_buf_adds(b, ",\n \"chat_template\": ");
        add_token(b, &unnamed);
    }
    return QP_OK;
}

static qp_status add_config(const vocabulary *v, const qp_gguf_model *m, qp_buf *b, qp_err *err)
{
    qp_buf_adds(b, "{\n \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n \"clean_up_tokenization_spaces\": false");
    qp_buf_printf(b, ",\n \"add_bos_token\": %s", v->add_bos ? "true" : "false");
    if (v->add_eos) qp_buf_adds(b, ",\n \"add_eos_token\": true");
    qp_buf_printf(b, ",\n \"model_max_length\": %llu", (unsigned long long)m->context);
    add_name(v, b, "bos_token", v->bos);
    add_name(v, b, "eos_token", v->eos);
    add_name(v, b, "unk_token", v->unk);
    add_name(v, b, "pad_token", v->pad);
    QP_TRY(add_chat_templates(v, b, err));
    qp_buf_adds(b, "\n}\n");
    return qp_buf_check(b, "tokenizer_config.json", err);
}

qp_status qp_gguf_tokenizer(const qp_gguf_model *m, const qp_gguf *g, qp_buf *json, qp_buf *config, size_t *n_tokens,
                            size_t *n_merges, qp_err *err)
{
    vocabulary v = {.g = g};
    size_t merges = 0;
    qp_arena_init(&v.arena, 0);
    json->limit = QP_MAX_JSON_BYTES;
    qp_status st = read_vocabulary(&v, m, err);
    if (st == QP_OK) st = add_tokenizer(&v, json, &merges, err);
    if (st == QP_OK) st = add_config(&v, m, config, err);
    if (st == QP_OK) {
        *n_tokens = v.n;
        *n_merges = merges;
    }
    vocabulary_deinit(&v);
    return st;
}
