/* Fuzz target: a template source, rendered with a small fixed context under small limits. Any ending is right but a
 * crash, a leak, invalid text or a long run. */
#include "io/json.h"
#include "text/template.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *make_context(void)
{
    static const char text[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \" S\\u00e9 \"}, {\"role\": \"user\", \"content\": "
        "[{\"type\":"
        "\"text\", \"text\": \"hi\"}]}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": "
        "\"abcdefghi\","
        "\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": [1.5, true, null]}}}]}, {\"role\": \"tool\","
        "\"content\": \"r\"}, {\"role\": \"user\", \"content\": \"bye\"}], \"tools\": [{\"type\": \"function\","
        "\"function\": {\"name\": \"f\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", \"properties\":"
        "{\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"]}}}], \"add_generation_prompt\": true, \"bos_token\":"
        "\"<s>\", \"eos_token\": \"</s>\", \"i\": 7, \"f\": 2.5, \"s\": \"a\\u00df\\ud83d\\ude00 b\", \"l\": [3, 1, 2],"
        "\"d\": {\"k\": \"v\", \"items\": 1}, \"n\": null}";
    qp_err err;
    json_t *v = NULL;
    if (qp_json_parse(&v, text, sizeof text - 1, "context", &err) != QP_OK) abort();
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const qp_template_limits limits = {1 << 20, 100000, 0, 8 << 20};
    qp_template *t;
    qp_template_error kind;
    qp_buf out = {0};
    qp_err err;
    if (size > 100000) return 0;
    if (qp_template_new(&t, (const char *)data, size, &kind, &err) != QP_OK) {
        if (kind != QP_TE_SYNTAX && kind != QP_TE_LIMIT) abort();
        return 0;
    }
    json_t *context = make_context();
    qp_status st = qp_template_render(t, context, 1767323045, &limits, &out, &kind, &err);
    if ((st == QP_OK) != (kind == QP_TE_NONE)) abort();
    json_t *text = st == QP_OK ? json_stringn(out.data ? out.data : "", out.len) : json_string(err.msg);
    if (!text) abort(); /* not UTF-8 */
    json_decref(text);
    json_decref(context);
    qp_buf_deinit(&out);
    qp_template_free(t);
    return 0;
}
