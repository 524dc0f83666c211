/* Trie over byte strings, built level by level from the sorted keys, so that children lie side by side. */
#include "text/tokenizer_int.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

static int compare_keys(const void *pa, const void *pb)
{
    const qp_trie_key *a = pa, *b = pb;
    int c = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    if (c) return c;
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

typedef struct range {
    size_t lo, hi;
    uint32_t depth;
} range;

/* Nodes that the sorted keys need: one for each byte not shared with the key before. */
static size_t count_nodes(const qp_trie_key *keys, size_t n)
{
    size_t total = 1;
    for (size_t i = 0; i < n; i++) {
        uint32_t common = 0;
        if (i)
            while (common < keys[i].len && common < keys[i - 1].len && keys[i].text[common] == keys[i - 1].text[common])
                common++;
        total += keys[i].len - common;
    }
    return total;
}

static void fill(qp_trie *t, range *ranges, const qp_trie_key *keys)
{
    t->n_nodes = 1;
    for (size_t at = 0; at < t->n_nodes; at++) {
        range r = ranges[at];
        qp_trie_node *node = &t->nodes[at];
        node->child = (uint32_t)t->n_nodes;
        node->value = -1;
        while (r.lo < r.hi && keys[r.lo].len == r.depth) { /* the first of equal keys wins */
            if (node->value < 0 && r.depth) node->value = keys[r.lo].value;
            r.lo++;
        }
        while (r.lo < r.hi) {
            unsigned char byte = (unsigned char)keys[r.lo].text[r.depth];
            size_t end = r.lo + 1;
            while (end < r.hi && (unsigned char)keys[end].text[r.depth] == byte) end++;
            ranges[t->n_nodes] = (range){r.lo, end, r.depth + 1};
            t->nodes[t->n_nodes++].byte = byte;
            node->n_children++;
            r.lo = end;
        }
    }
}

qp_status qp_trie_build(qp_trie *t, qp_trie_key *keys, size_t n, qp_err *err)
{
    range *ranges;
    memset(t, 0, sizeof *t);
    if (n == 0) return QP_OK;
    qsort(keys, n, sizeof *keys, compare_keys);
    size_t total = count_nodes(keys, n);
    if (total > UINT32_MAX) return qp_fail(err, QP_ELIMIT, "trie: %zu nodes", total);
    QP_TRY(qp_new(&ranges, total, sizeof *ranges, "trie", err));
    qp_status st = qp_new(&t->nodes, total, sizeof *t->nodes, "trie", err);
    if (st == QP_OK) {
        ranges[0] = (range){0, n, 0};
        fill(t, ranges, keys);
        for (unsigned i = 0; i < t->nodes[0].n_children; i++) {
            uint32_t child = t->nodes[0].child + i;
            t->root[t->nodes[child].byte] = child;
            t->one_first = t->nodes[child].byte;
            t->n_first++;
        }
    }
    qp_free(ranges);
    return st;
}

void qp_trie_deinit(qp_trie *t)
{
    qp_free(t->nodes);
    memset(t, 0, sizeof *t);
}

uint32_t qp_trie_step(const qp_trie *t, uint32_t node, unsigned char byte)
{
    if (node == 0) return t->root[byte];
    uint32_t lo = t->nodes[node].child, n = t->nodes[node].n_children;
    while (n > 4) {
        uint32_t half = n / 2;
        if (t->nodes[lo + half].byte <= byte) {
            lo += half;
            n -= half;
        } else {
            n = half;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (t->nodes[lo + i].byte == byte) return lo + i;
    return 0;
}
