/* A conversation in the terminal: see chat_session.h. */
#include "cli/chat_session.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "io/out_file.h"

#include <string.h>

void qp_conversation_deinit(qp_conversation *c)
{
    json_decref(c->system);
    json_decref(c->turns);
    *c = (qp_conversation){NULL, NULL};
}

size_t qp_conversation_n_turns(const qp_conversation *c)
{
    return json_array_size(c->turns);
}

/* A JSON string of any bytes. */
static json_t *clean_string(const char *text, size_t n)
{
    qp_buf b = {0};
    qp_utf8_sanitize(&b, text, n);
    json_t *s = b.failed ? NULL : json_stringn(b.data ? b.data : "", b.len);
    qp_buf_deinit(&b);
    return s;
}

qp_status qp_conversation_add(qp_conversation *c, const char *role, const char *text, size_t n, qp_err *err)
{
    if (!c->turns) c->turns = json_array();
    json_t *turn = json_pack("{s:s, s:o}", "role", role, "content", clean_string(text, n));
    if (json_array_append_new(c->turns, turn)) /* takes turn in any case, and refuses NULL */
        return qp_fail(err, QP_ENOMEM, "no memory for a message of %zu bytes", n);
    return QP_OK;
}

qp_status qp_conversation_set_system(qp_conversation *c, const char *text, qp_err *err)
{
    json_t *s = NULL;
    if (text && *text && !(s = clean_string(text, strlen(text))))
        return qp_fail(err, QP_ENOMEM, "no memory for the system message");
    json_decref(c->system);
    c->system = s;
    return QP_OK;
}

void qp_conversation_drop(qp_conversation *c, size_t n)
{
    while (n-- && json_array_size(c->turns)) json_array_remove(c->turns, json_array_size(c->turns) - 1);
}

static const json_t *last_turn(const qp_conversation *c)
{
    size_t n = json_array_size(c->turns);
    return n ? json_array_get(c->turns, n - 1) : NULL;
}

const char *qp_conversation_last_role(const qp_conversation *c)
{
    return json_string_value(json_object_get(last_turn(c), "role"));
}

const char *qp_conversation_last_text(const qp_conversation *c)
{
    return json_string_value(json_object_get(last_turn(c), "content"));
}

json_t *qp_conversation_messages(const qp_conversation *c)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    if (ok && c->system)
        ok = json_array_append_new(list, json_pack("{s:s, s:O}", "role", "system", "content", c->system)) == 0;
    if (ok && c->turns) ok = json_array_extend(list, c->turns) == 0;
    if (ok) return list;
    json_decref(list);
    return NULL;
}

typedef struct {
    qp_out_file *file;
    qp_err *err;
} saving;

/* For json_dump_callback: 0 to go on. */
static int save_piece(const char *data, size_t n, void *arg)
{
    saving *s = arg;
    return qp_out_file_write(s->file, data, n, s->err) == QP_OK ? 0 : -1;
}

qp_status qp_conversation_save(const qp_conversation *c, const char *path, qp_err *err)
{
    saving s = {NULL, err};
    qp_status st = QP_OK;
    json_t *root = json_pack("{s:o}", "messages", qp_conversation_messages(c));
    if (!root) return qp_fail(err, QP_ENOMEM, "no memory to save the conversation");
    QP_TRY_OUT(qp_out_file_open(&s.file, path, err));
    *err = (qp_err){QP_OK, ""};
    if (json_dump_callback(root, save_piece, &s, JSON_INDENT(1)))
        QP_TRY_OUT(err->status != QP_OK ? err->status : qp_fail(err, QP_ENOMEM, "%s: no memory to save it", path));
    QP_TRY_OUT(qp_out_file_write(s.file, "\n", 1, err));
    st = qp_out_file_commit(s.file, err);
out:
    qp_out_file_close(s.file);
    json_decref(root);
    return st;
}

/* Fills next from a list of messages. */
static qp_status take(qp_conversation *next, const json_t *list, const char *path, qp_err *err)
{
    if (!json_is_array(list))
        return qp_fail(err, QP_EFORMAT, "%s: wanted a list of messages, or an object with \"messages\"", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        const json_t *content = json_object_get(m, "content");
        if (!role || !json_is_string(content))
            return qp_fail(err, QP_EFORMAT, "%s: message %zu: wanted a role and a content, both strings", path, i);
        if (strcmp(role, "system") == 0 && i == 0)
            QP_TRY(qp_conversation_set_system(next, json_string_value(content), err));
        else if (strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0)
            QP_TRY(qp_conversation_add(next, role, json_string_value(content), json_string_length(content), err));
        else
            return qp_fail(err, QP_EFORMAT, "%s: message %zu: role %.40s, wanted user, assistant or a first system",
                           path, i, role);
    }
    return QP_OK;
}

qp_status qp_conversation_load(qp_conversation *c, const char *path, qp_err *err)
{
    json_t *root = NULL;
    qp_conversation next = {NULL, NULL};
    QP_TRY(qp_json_load(&root, path, err));
    qp_status st = take(&next, json_is_object(root) ? json_object_get(root, "messages") : root, path, err);
    json_decref(root);
    if (st != QP_OK) {
        qp_conversation_deinit(&next);
        return st;
    }
    qp_conversation_deinit(c);
    *c = next;
    return QP_OK;
}
