/* Chat templates: the public functions. See template.h; how it works inside: template_impl.h. */
#include "text/template.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/template_impl.h"

#include <string.h>

/* ---- parsing ---- */

/* Copies the source with newlines normalized and one final newline dropped. Rejects invalid UTF-8. */
static bool normalize(qp_tparser *ps, const char *source, size_t n)
{
    uint32_t line = 1;
    size_t len = 0;
    char *p = qp_arena_alloc(&ps->t->arena, n + 1);
    if (!p) return qp_t_parse_oom(ps);
    for (size_t i = 0; i < n;) {
        int32_t cp;
        size_t step = qp_utf8_decode(source + i, n - i, &cp);
        if (cp < 0) return qp_t_syntax(ps, line, "byte 0x%02X is not valid UTF-8", (unsigned char)source[i]);
        if (cp == '\r') {
            step = i + 1 < n && source[i + 1] == '\n' ? 2 : 1;
            p[len++] = '\n';
        } else {
            memcpy(p + len, source + i, step);
            len += step;
        }
        line += p[len - 1] == '\n';
        i += step;
    }
    if (len && p[len - 1] == '\n') len--;
    p[len] = 0;
    ps->src = p;
    ps->n = len;
    return true;
}

static bool intern_known(qp_tparser *ps)
{
    static const char *const known[QP_T_N_KNOWN] = {"loop", "caller", "varargs", "kwargs", "self"};
    for (size_t i = 0; i < QP_T_N_KNOWN; i++) {
        if (!qp_t_intern(ps, known[i], strlen(known[i]))) return false;
    }
    return true;
}

qp_status qp_template_new(qp_template **out, const char *source, size_t n, qp_template_error *kind, qp_err *err)
{
    qp_template *t;
    qp_tparser ps = {.err = err};
    if (kind) *kind = QP_TE_NONE;
    if (n > QP_T_MAX_SOURCE) {
        if (kind) *kind = QP_TE_LIMIT;
        return qp_fail(err, QP_ELIMIT, "chat template: %zu bytes, at most %zu", n, QP_T_MAX_SOURCE);
    }
    QP_TRY(qp_new(&t, 1, sizeof *t, "a chat template", err));
    qp_arena_init(&t->arena, QP_T_MAX_TREE);
    qp_arena_init(&ps.scratch, QP_T_MAX_TREE);
    ps.t = t;
    bool ok = normalize(&ps, source, n) && intern_known(&ps) && qp_t_parse_template(&ps);
    qp_arena_deinit(&ps.scratch);
    if (!ok) {
        if (kind) *kind = ps.kind;
        qp_template_free(t);
        return err->status;
    }
    *out = t;
    return QP_OK;
}

void qp_template_free(qp_template *t)
{
    if (!t) return;
    qp_arena_deinit(&t->arena);
    qp_free(t);
}

bool qp_template_wants_content_parts(const qp_template *t)
{
    return t->wants_parts;
}

/* ---- rendering ---- */

static bool render(qp_trun *r, const json_t *context)
{
    qp_tv v;
    if (!json_is_object(context)) return qp_t_fail(r, QP_TE_RUNTIME, "the context of a template must be an object");
    if (!qp_t_from_json(r, context, &v, 0) || !qp_t_new_scope(r, NULL, &r->top)) return false;
    r->context = v.as.d;
    return qp_t_exec(r, r->t->body, r->top) != QP_FLOW_FAIL;
}

qp_status qp_template_render(const qp_template *t, const json_t *context, int64_t now_unix,
                             const qp_template_limits *limits, qp_buf *out, qp_template_error *kind, qp_err *err)
{
    static const qp_template_limits none = {0};
    const qp_template_limits *lim = limits ? limits : &none;
    qp_trun r = {.t = t, .now = now_unix, .err = err};
    qp_status st = QP_OK;
    r.max_steps = lim->max_steps ? lim->max_steps : 50000000;
    r.max_depth = lim->max_depth ? lim->max_depth : 200;
    r.buf.limit = lim->max_output_bytes ? lim->max_output_bytes : (size_t)64 << 20;
    qp_arena_init(&r.arena, lim->max_memory_bytes ? lim->max_memory_bytes : (size_t)256 << 20);
    if (!render(&r, context)) {
        st = err->status;
    } else {
        size_t before = out->len;
        qp_buf_add(out, r.buf.data, r.buf.len);
        st = qp_buf_check(out, "chat template", err);
        if (st == QP_ELIMIT) r.kind = QP_TE_LIMIT;
        if (st != QP_OK) out->len = before;
    }
    if (kind) *kind = r.kind;
    qp_buf_deinit(&r.buf);
    qp_arena_deinit(&r.arena);
    return st;
}
