/* JSON on stdout: see json_out.h. */
#include "cli/json_out.h"

#include "cli/term.h"

qp_status qp_out_json(json_t *value, size_t flags, qp_err *err)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | flags) : NULL;
    json_decref(value);
    if (!text) return qp_fail(err, QP_ENOMEM, "no memory for a line of JSON output, or a figure in it is not finite");
    qp_out_printf("%s\n", text);
    json_malloc_t give;
    json_free_t take;
    json_get_alloc_funcs(&give, &take);
    take(text);
    return QP_OK;
}
