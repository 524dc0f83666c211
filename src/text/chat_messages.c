/* Messages of a request, brought into the form that chat templates expect: see chat.h. */
#include "text/chat_impl.h"

#include "base/buf.h"

#include <stdio.h>
#include <string.h>

static qp_status no_memory(qp_err *err)
{
    return qp_fail(err, QP_ENOMEM, "chat: no memory for the messages");
}

/* ---- content ---- */

/* Sets *text to the text of a part (borrowed), or to NULL for an image. */
static qp_status read_part(const json_t *part, const char *where, const json_t **text, qp_err *err)
{
    static const char *const texts[] = {"text", "input_text", "output_text", "refusal"};
    static const char *const images[] = {"image", "image_url", "input_image"};
    const char *type = json_string_value(json_object_get(part, "type"));
    *text = part;
    if (json_is_string(part)) return QP_OK;
    if (!json_is_object(part)) return qp_fail(err, QP_EINVAL, "%s: a content part must be an object", where);
    if (!type) return qp_fail(err, QP_EINVAL, "%s: a content part needs a string \"type\"", where);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *key = i == 3 ? "refusal" : "text";
        if (strcmp(type, texts[i])) continue;
        *text = json_object_get(part, key);
        if (json_is_string(*text)) return QP_OK;
        return qp_fail(err, QP_EINVAL, "%s: a content part of type \"%s\" needs a string \"%s\"", where, type, key);
    }
    *text = NULL;
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        if (!strcmp(type, images[i])) return QP_OK;
    }
    return qp_fail(err, QP_EUNSUPPORTED, "%s: content parts of type \"%.64s\" are not supported", where, type);
}

/* A list of {"type": "text", "text"} and {"type": "image"}; the tag goes behind the last text. */
static qp_status part_list(const json_t *content, const char *where, const char *tag, json_t **out, qp_err *err)
{
    json_t *list = json_array();
    size_t n = json_array_size(content), last = n;
    qp_status st = list ? QP_OK : no_memory(err);
    for (size_t i = 0; st == QP_OK && i < n; i++) {
        const json_t *text;
        st = read_part(json_array_get(content, i), where, &text, err);
        if (st != QP_OK) break;
        json_t *part =
            text ? json_pack("{s:s, s:O}", "type", "text", "text", text) : json_pack("{s:s}", "type", "image");
        if (text) last = i;
        if (json_array_append_new(list, part)) st = no_memory(err);
    }
    if (st == QP_OK && tag && last == n) st = qp_fail(err, QP_EINVAL, "%s: no text to continue", where);
    if (st == QP_OK && tag) {
        json_t *part = json_array_get(list, last), *text = json_object_get(part, "text");
        qp_buf b = {0};
        qp_buf_add(&b, json_string_value(text), json_string_length(text));
        qp_buf_adds(&b, tag);
        if (b.failed || json_object_set_new(part, "text", json_stringn(b.data, b.len))) st = no_memory(err);
        qp_buf_deinit(&b);
    }
    if (st != QP_OK)
        json_decref(list);
    else
        *out = list;
    return st;
}

/* All text of the content, parts joined with newlines, the tag behind it. */
static qp_status joined(const json_t *content, const char *where, const char *tag, json_t **out, qp_err *err)
{
    qp_buf b = {0};
    qp_status st = QP_OK;
    if (json_is_string(content)) qp_buf_add(&b, json_string_value(content), json_string_length(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *text;
        QP_TRY_OUT(read_part(json_array_get(content, i), where, &text, err));
        if (!text) {
            st = qp_fail(err, QP_EUNSUPPORTED, "%s: an image, but the chat template takes text alone", where);
            goto out;
        }
        if (i) qp_buf_addc(&b, '\n');
        qp_buf_add(&b, json_string_value(text), json_string_length(text));
    }
    if (tag) qp_buf_adds(&b, tag);
    if (b.failed || !(*out = json_stringn(b.data ? b.data : "", b.len))) st = no_memory(err);
out:
    qp_buf_deinit(&b);
    return st;
}

static qp_status fix_content(json_t *msg, size_t i, bool parts, const char *tag, qp_err *err)
{
    char where[64];
    const json_t *content = json_object_get(msg, "content");
    json_t *made = NULL;
    snprintf(where, sizeof where, "messages[%zu].content", i);
    if (!json_is_string(content) && !json_is_array(content)) {
        if (content && !json_is_null(content))
            return qp_fail(err, QP_EINVAL, "%s must be a string, null or a list of parts", where);
        return tag ? qp_fail(err, QP_EINVAL, "%s: nothing to continue", where) : QP_OK;
    }
    if (json_is_string(content) && !tag) return QP_OK;
    if (json_is_array(content) && parts)
        QP_TRY(part_list(content, where, tag, &made, err));
    else
        QP_TRY(joined(content, where, tag, &made, err));
    return json_object_set_new(msg, "content", made) ? no_memory(err) : QP_OK;
}

/* ---- tool calls ---- */

/* Text of arguments to an object. */
static qp_status parse_arguments(const json_t *text, const char *where, json_t **out, qp_err *err)
{
    const char *p = json_string_value(text);
    size_t n = json_string_length(text), blank = 0;
    json_t *v = NULL;
    while (blank < n && strchr(" \t\r\n", p[blank]) && p[blank]) blank++;
    if (blank < n) {
        qp_status st = qp_json_parse(&v, p, n, where, err);
        if (st == QP_EFORMAT) st = err->status = QP_EINVAL; /* a fault of the request */
        if (st != QP_OK) return st;
    }
    if (!v || json_is_null(v)) {
        json_decref(v);
        if (!(v = json_object())) return no_memory(err);
    }
    if (!json_is_object(v)) {
        json_decref(v);
        return qp_fail(err, QP_EINVAL, "%s must be a JSON object", where);
    }
    *out = v;
    return QP_OK;
}

/* Copies one call and its function and parses the arguments. */
static qp_status fix_call(json_t *calls, size_t i, size_t k, qp_err *err)
{
    char where[96];
    json_t *call = json_array_get(calls, k), *function, *args, *made = NULL;
    snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu].function.arguments", i, k);
    if (!json_is_object(call)) return qp_fail(err, QP_EINVAL, "messages[%zu].tool_calls[%zu] must be an object", i, k);
    if (json_array_set_new(calls, k, call = json_copy(call))) return no_memory(err);
    function = json_object_get(call, "function");
    if (!json_is_object(function)) return QP_OK; /* another type of call: the template knows */
    if (json_object_set_new(call, "function", function = json_copy(function))) return no_memory(err);
    args = json_object_get(function, "arguments");
    if (json_is_object(args)) return QP_OK;
    if (json_is_string(args)) {
        QP_TRY(parse_arguments(args, where, &made, err));
    } else if (!args || json_is_null(args)) {
        if (!(made = json_object())) return no_memory(err);
    } else {
        return qp_fail(err, QP_EINVAL, "%s must be a string with a JSON object", where);
    }
    return json_object_set_new(function, "arguments", made) ? no_memory(err) : QP_OK;
}

static qp_status fix_calls(json_t *msg, size_t i, qp_err *err)
{
    json_t *calls = json_object_get(msg, "tool_calls");
    if (!calls) return QP_OK;
    if (!json_is_array(calls)) return qp_fail(err, QP_EINVAL, "messages[%zu].tool_calls must be an array", i);
    if (!json_array_size(calls)) {
        json_object_del(msg, "tool_calls");
        return QP_OK;
    }
    calls = json_copy(calls);
    if (!calls || json_object_set_new(msg, "tool_calls", calls)) return no_memory(err);
    for (size_t k = 0; k < json_array_size(calls); k++) QP_TRY(fix_call(calls, i, k, err));
    return QP_OK;
}

/* ---- messages ---- */

static qp_status fix_reasoning(json_t *msg, qp_err *err)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *v = NULL;
    for (size_t i = 0; !v && i < 3; i++) {
        v = json_object_get(msg, names[i]);
        if (!json_is_string(v)) v = NULL;
    }
    for (size_t i = 0; v && i < 2; i++) {
        if (json_object_get(msg, names[i])) continue;
        if (json_object_set(msg, names[i], v)) return no_memory(err);
    }
    return QP_OK;
}

static qp_status copy_message(const json_t *from, size_t i, json_t **out, qp_err *err)
{
    const char *key;
    json_t *v, *msg = NULL;
    if (!json_is_object(from)) return qp_fail(err, QP_EINVAL, "messages[%zu] must be an object", i);
    if (!json_is_string(json_object_get(from, "role")))
        return qp_fail(err, QP_EINVAL, "messages[%zu].role must be a string", i);
    if (!(msg = json_object())) return no_memory(err);
    json_object_foreach(qp_chat_mutable(from), key, v)
    {
        if (json_is_null(v) && strcmp(key, "content")) continue;
        if (!json_object_set(msg, key, v)) continue;
        json_decref(msg);
        return no_memory(err);
    }
    *out = msg;
    return QP_OK;
}

qp_status qp_chat_messages(json_t **out, const json_t *messages, bool parts, const char *tag, qp_err *err)
{
    qp_status st = QP_OK;
    size_t n = json_array_size(messages);
    if (!json_is_array(messages)) return qp_fail(err, QP_EINVAL, "messages must be an array");
    if (tag && !n) return qp_fail(err, QP_EINVAL, "continue_final_message is set, but there is no message");
    json_t *list = json_array();
    if (!list) return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        json_t *msg = NULL;
        QP_TRY_OUT(copy_message(json_array_get(messages, i), i, &msg, err));
        if (json_array_append_new(list, msg)) {
            st = no_memory(err);
            goto out;
        }
        QP_TRY_OUT(fix_reasoning(msg, err));
        QP_TRY_OUT(fix_calls(msg, i, err));
        QP_TRY_OUT(fix_content(msg, i, parts, i + 1 == n ? tag : NULL, err));
    }
out:
    if (st != QP_OK)
        json_decref(list);
    else
        *out = list;
    return st;
}
