/* quantpack tokenize: text to token ids and back, one JSON value a line. */
#include "base/buf.h"
#include "base/utf8.h"
#include "cli/cmd.h"
#include "cli/json_out.h"
#include "cli/load.h"
#include "cli/options.h"
#include "cli/term.h"
#include "io/json.h"
#include "io/map.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *jsonl;
    bool add_special, decode, skip_special;
} tokenize_args;

#define AT(field) offsetof(tokenize_args, field)
static const qp_opt options[] = {
    {"jsonl", 0, QP_OPT_STR, "FILE", AT(jsonl), 0, 0, NULL,
     "one JSON value a line: a string or {\"text\": ...}; with --decode a list of ids or {\"ids\": [...]}", NULL},
    {"add-special", 0, QP_OPT_FLAG, NULL, AT(add_special), 0, 0, NULL,
     "add the tokens that the model expects around a text (bos, eos)", NULL},
    {"decode", 0, QP_OPT_FLAG, NULL, AT(decode), 0, 0, NULL, "from ids to text; TEXT is then 1,2,3", NULL},
    {"skip-special", 0, QP_OPT_FLAG, NULL, AT(skip_special), 0, 0, NULL, "with --decode: leave special tokens out",
     NULL},
};

typedef struct {
    const qp_tokenizer *tokenizer;
    const tokenize_args *args;
    qp_ids ids;
    qp_buf text;
} work;

static qp_status encode(work *w, const char *text, size_t len, qp_err *err)
{
    w->ids.n = 0;
    QP_TRY(qp_tokenizer_encode(w->tokenizer, text, len, w->args->add_special, &w->ids, err));
    qp_out_write("[", 1);
    for (size_t i = 0; i < w->ids.n; i++) qp_out_printf(i ? ",%d" : "%d", w->ids.ids[i]);
    qp_out_write("]\n", 2);
    return QP_OK;
}

static qp_status decode(work *w, qp_err *err)
{
    qp_buf clean = {0};
    qp_buf_clear(&w->text);
    QP_TRY(qp_tokenizer_decode(w->tokenizer, w->ids.ids, w->ids.n, w->args->skip_special, &w->text, err));
    qp_utf8_sanitize(&clean, w->text.data ? w->text.data : "", w->text.len);
    qp_status st = qp_buf_check(&clean, "decoded text", err);
    if (st == QP_OK) st = qp_out_json(json_stringn(clean.data ? clean.data : "", clean.len), 0, err);
    qp_buf_deinit(&clean);
    return st;
}

static qp_status read_ids(work *w, const json_t *list, const char *where, qp_err *err)
{
    w->ids.n = 0;
    if (!json_is_array(list)) return qp_fail(err, QP_EINVAL, "%s: wanted a list of ids or {\"ids\": [...]}", where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > INT32_MAX)
            return qp_fail(err, QP_EINVAL, "%s: item %zu is not a token id (0 to %d)", where, i, INT32_MAX);
        QP_TRY(qp_ids_push(&w->ids, (int32_t)id, err));
    }
    return QP_OK;
}

static qp_status one_value(work *w, const json_t *v, const char *where, qp_err *err)
{
    const json_t *member = json_is_object(v) ? json_object_get(v, w->args->decode ? "ids" : "text") : v;
    if (w->args->decode) {
        QP_TRY(read_ids(w, member, where, err));
        return decode(w, err);
    }
    if (!json_is_string(member)) return qp_fail(err, QP_EINVAL, "%s: wanted a string or {\"text\": ...}", where);
    return encode(w, json_string_value(member), json_string_length(member), err);
}

static qp_status whole_file(work *w, const char *path, qp_err *err)
{
    qp_map map;
    QP_TRY(qp_map_open(&map, path, err));
    qp_status st = QP_OK;
    size_t pos = 0, line = 0;
    while (pos < map.len && st == QP_OK && !qp_out_failed()) {
        const char *start = (const char *)map.data + pos;
        const char *end = memchr(start, '\n', map.len - pos);
        size_t n = end ? (size_t)(end - start) : map.len - pos;
        pos += n + 1;
        line++;
        if (qp_is_blank(start, n)) continue;
        char where[512];
        json_t *v = NULL;
        snprintf(where, sizeof where, "%s, line %zu", path, line);
        st = qp_json_parse(&v, start, n, where, err);
        if (st == QP_OK) st = one_value(w, v, where, err);
        json_decref(v);
        if (st == QP_OK && qp_term_interrupted()) st = qp_fail(err, QP_ECANCELLED, "interrupted");
    }
    qp_map_close(&map);
    return st;
}

static qp_status open_tokenizer(qp_tokenizer **out, const char *path, qp_err *err)
{
    if (!qp_path_exists(path)) return qp_fail(err, QP_EIO, "%s: no such folder or file", path);
    if (qp_path_is_dir(path)) return qp_tokenizer_open(out, path, err);
    qp_map map;
    QP_TRY(qp_map_open(&map, path, err));
    qp_status st = qp_tokenizer_parse(out, (const char *)map.data, map.len, NULL, 0, path, err);
    qp_map_close(&map);
    return st;
}

static qp_status run(const char *model, const char *text, const tokenize_args *args, qp_err *err)
{
    qp_tokenizer *t = NULL;
    work w = {.args = args};
    qp_json_init();
    QP_TRY(open_tokenizer(&t, model, err));
    w.tokenizer = t;
    qp_status st;
    if (qp_term_interrupted()) {
        st = qp_fail(err, QP_ECANCELLED, "interrupted");
    } else if (args->jsonl) {
        st = whole_file(&w, args->jsonl, err);
    } else if (args->decode) {
        st = qp_ids_parse(text, "TEXT", &w.ids, err);
        if (st == QP_OK) st = decode(&w, err);
    } else {
        st = encode(&w, text, strlen(text), err);
    }
    qp_ids_deinit(&w.ids);
    qp_buf_deinit(&w.text);
    qp_tokenizer_free(t);
    return st;
}

int qp_cmd_tokenize(int argc, char **argv)
{
    tokenize_args args = {0};
    const qp_opt_group groups[] = {{"options", options, sizeof options / sizeof options[0], &args}};
    const qp_usage usage = {
        .command = "tokenize",
        .arguments = "MODEL (TEXT | --jsonl FILE) [options]",
        .summary = "text to token ids and back, one JSON value a line",
        .description = "MODEL is a model folder or a tokenizer.json file.",
        .examples = "  quantpack tokenize models/mine \"Hello there\"\n"
                    "  quantpack tokenize models/mine --decode 9125,665\n"
                    "  quantpack tokenize models/mine --jsonl texts.jsonl --add-special\n",
        .min_positional = 1,
        .max_positional = 2,
        .groups = groups,
        .n_groups = 1,
    };
    const char *pos[QP_MAX_POSITIONAL];
    int code;
    if (!qp_options_parse(&usage, argc, argv, pos, NULL, &code)) return code;
    if (!args.jsonl == !pos[1]) return qp_usage_error("tokenize", "wanted either TEXT or --jsonl FILE");
    if (args.skip_special && !args.decode) return qp_usage_error("tokenize", "--skip-special goes with --decode");
    if (args.add_special && args.decode) return qp_usage_error("tokenize", "--add-special does not go with --decode");
    qp_err err = {0};
    return run(pos[0], pos[1], &args, &err) == QP_OK ? QP_EXIT_OK : qp_report(&err);
}
