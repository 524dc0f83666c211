/* JSON on stdout. */
#ifndef QP_CLI_JSON_OUT_H
#define QP_CLI_JSON_OUT_H

#include "base/err.h"
#include "io/json.h"

/* Prints value (any JSON value; the reference is taken over, NULL counts as lack of memory) and a newline. flags are
 * jansson's. */
qp_status qp_out_json(json_t *value, size_t flags, qp_err *err);

#endif
