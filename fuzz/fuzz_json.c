/* Any bytes as JSON, through the stream and the tree. Both must agree on what is JSON; the tree may refuse more
 * (repeated keys, NUL in keys, numbers that are too large). A span must parse again as the same value, and a string
 * survives being written. */
#include "base/alloc.h"
#include "io/json.h"
#include "io/json_stream.h"

#include <stdlib.h>
#include <string.h>

static void must(bool ok)
{
    if (!ok) abort();
}

static void write_and_read(const char *s, size_t n)
{
    qp_buf b = {0};
    qp_err err = {0};
    json_t *v = NULL;
    qp_json_add_str(&b, s, n);
    must(qp_json_parse(&v, b.data, b.len, "again", &err) == QP_OK);
    must(json_string_length(v) == n && memcmp(json_string_value(v), s, n) == 0);
    json_decref(v);
    qp_buf_deinit(&b);
}

static bool stream_all(const char *s, size_t n, qp_err *err)
{
    qp_json_stream js;
    qp_json_token t;
    qp_status st;
    size_t steps = 0;
    qp_json_stream_init(&js, s, n, "fuzz");
    do {
        st = qp_json_stream_next(&js, &t, err);
        double d;
        uint64_t u;
        if (st == QP_OK && t == QP_JSON_NUM) {
            (void)qp_json_stream_as_f64(&js, &d);
            (void)qp_json_stream_as_u64(&js, &u);
        }
        if (st == QP_OK && (t == QP_JSON_STR || t == QP_JSON_KEY)) write_and_read(js.text, js.len);
        must(js.pos <= n && ++steps <= n + 2);
    } while (st == QP_OK && t != QP_JSON_END);
    qp_json_stream_deinit(&js);
    return st == QP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *s = (const char *)data, *span;
    qp_err err = {0};
    size_t live = qp_alloc_live_bytes(), len;
    json_t *tree = NULL;
    bool ok = stream_all(s, size, &err);
    qp_status st = qp_json_parse(&tree, s, size, "fuzz", &err);
    must(ok || st != QP_OK);
    if (st == QP_OK) {
        qp_json_stream js;
        json_t *again = NULL;
        qp_json_stream_init(&js, s, size, "fuzz");
        must(qp_json_stream_span(&js, &span, &len, &err) == QP_OK);
        must(span >= s && span + len <= s + size);
        must(qp_json_parse(&again, span, len, "fuzz", &err) == QP_OK && json_equal(tree, again));
        qp_json_stream_deinit(&js);
        json_decref(again);
        json_decref(tree);
    } else {
        must(tree == NULL && err.msg[0] != 0);
    }
    must(qp_alloc_live_bytes() == live);
    return 0;
}
