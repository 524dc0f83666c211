/* Unigram model: the segmentation of a piece with the greatest sum of log probabilities (Viterbi over the trie of
 * pieces), in doubles added from left to right, a later path winning only when strictly better. */
#include "text/tokenizer_int.h"

#include <math.h>
#include <string.h>

typedef struct node { /* best path that ends at this byte */
    double score;
    uint32_t start;
    int32_t id; /* -1: unknown code point; -2: not reached */
} node;

static void relax(node *to, double score, size_t start, int32_t id)
{
    if (to->id != -2 && !(score > to->score)) return;
    *to = (node){score, (uint32_t)start, id};
}

/* Unknown code points next to each other: their bytes if every one has a token, else one unk. */
static qp_status push_unknown(qp_tok_ctx *c, const char *s, size_t n)
{
    const qp_tokenizer *t = c->t;
    bool all = t->byte_fallback;
    for (size_t i = 0; i < n && all; i++) all = t->fallback_ids[(unsigned char)s[i]] >= 0;
    if (!all && t->unk < 0)
        return qp_fail(c->err, QP_EINVAL, "%s: the text has a character outside the vocabulary, which has no unk_id",
                       t->name);
    if (!all) return qp_tok_push(c, t->unk);
    for (size_t i = 0; i < n; i++) QP_TRY(qp_tok_push(c, t->fallback_ids[(unsigned char)s[i]]));
    return QP_OK;
}

static void viterbi(const qp_tokenizer *t, const char *s, size_t n, node *best)
{
    for (size_t i = 0; i <= n; i++) best[i].id = -2;
    best[0] = (node){0, 0, 0};
    for (size_t i = 0; i < n;) {
        size_t first = qp_uni_len((unsigned char)s[i]);
        bool single = false;
        uint32_t at = 0;
        for (size_t k = i; k < n; k++) {
            at = t->pieces.nodes ? qp_trie_step(&t->pieces, at, (unsigned char)s[k]) : 0;
            if (!at) break;
            int32_t id = t->pieces.nodes[at].value;
            if (id < 0) continue;
            single |= k + 1 == i + first;
            relax(&best[k + 1], best[i].score + t->scores[id], i, id);
        }
        if (!single) relax(&best[i + first], best[i].score + t->unk_score, i, -1);
        i += first;
    }
}

qp_status qp_tok_unigram(qp_tok_ctx *c, const char *s, size_t n)
{
    node small[128], *best = small;
    if (n >= 128 && !(best = qp_tok_ctx_scratch(c, (n + 1) * sizeof *best))) return QP_ENOMEM;
    viterbi(c->t, s, n, best);
    /* Turn the chain of starts around: best[i] gets the id of the segment that starts at i, and `score` its end, which
     * a double holds exactly. */
    int32_t id = best[n].id;
    for (size_t end = n, start; end > 0; end = start) {
        start = best[end].start;
        int32_t id_before = best[start].id;
        best[start].id = id;
        best[start].score = (double)end;
        id = id_before;
    }
    size_t run = n; /* start of a run of unknown code points, n: none */
    for (size_t i = 0, next; i < n; i = next) {
        next = (size_t)best[i].score;
        bool unknown = best[i].id < 0 || best[i].id == c->t->unk;
        if (unknown) {
            if (run == n) run = i;
            continue;
        }
        if (run < n) QP_TRY(push_unknown(c, s + run, i - run));
        run = n;
        QP_TRY(qp_tok_push(c, best[i].id));
    }
    return run < n ? push_unknown(c, s + run, n - run) : QP_OK;
}
