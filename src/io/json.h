/* JSON from outside, over jansson: depth and size are bounded before parsing, and typed getters name the key.
 * Objects keep the order of their keys. Allocation goes through base/alloc once qp_json_init has run (every entry here
 * runs it), so that allocation failures can be tested. */
#ifndef QP_IO_JSON_H
#define QP_IO_JSON_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Installs the allocation functions; harmless to repeat. Call before any direct use of jansson constructors. */
void qp_json_init(void);

/* Parses n bytes. `name` is used in messages. On success *out is owned by the caller (json_decref). Duplicate keys,
 * trailing bytes, invalid UTF-8, depth over QP_MAX_JSON_DEPTH are errors; any JSON value is accepted at the top. */
qp_status qp_json_parse(json_t **out, const char *data, size_t n, const char *name, qp_err *err);

/* The same for a file, at most QP_MAX_JSON_BYTES long. */
qp_status qp_json_load(json_t **out, const char *path, qp_err *err);

/* Integer member `key` of obj in [lo, hi]. When the key is absent or null: *out = fallback if has_fallback, else an
 * error. A float with an integral value is accepted. `where` is the file's name for messages. */
qp_status qp_json_get_u32(const json_t *obj, const char *key, uint32_t lo, uint32_t hi, bool has_fallback,
                          uint32_t fallback, uint32_t *out, const char *where, qp_err *err);

/* Finite number member; absent or null gives fallback if has_fallback, else an error. */
qp_status qp_json_get_f64(const json_t *obj, const char *key, bool has_fallback, double fallback, double *out,
                          const char *where, qp_err *err);

/* Boolean member; absent or null gives fallback; another type is an error. */
qp_status qp_json_get_bool(const json_t *obj, const char *key, bool fallback, bool *out, const char *where,
                           qp_err *err);

/* String member, borrowed from obj; absent or null gives fallback (may be NULL); another type, or a string with a
 * NUL character, is an error. */
qp_status qp_json_get_str(const json_t *obj, const char *key, const char *fallback, const char **out, const char *where,
                          qp_err *err);

/* Appends the JSON string of n bytes of valid UTF-8, quotes included; only what JSON demands is escaped. */
void qp_json_add_str(qp_buf *out, const char *s, size_t n);
#endif
