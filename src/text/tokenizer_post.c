/* Post-processors: what encoding with special tokens puts before and after the text, as two lists of ids. */
#include "text/tokenizer_int.h"

#include "io/json.h"

#include <string.h>

static qp_status bad(const qp_tokenizer *t, qp_err *err, const char *what)
{
    return qp_fail(err, QP_EFORMAT, "%s: post_processor: %s", t->name, what);
}

/* An id of a template; it must be a token. */
static qp_status push_id(const qp_tokenizer *t, qp_ids *list, const json_t *v, qp_err *err)
{
    int64_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (!qp_tok_vocab_has(&t->vocab, id))
        return qp_fail(err, QP_EFORMAT, "%s: post_processor: id %lld is not a token", t->name, (long long)id);
    return qp_ids_push(list, (int32_t)id, err);
}

/* Puts `inner` lists inside new ones: prefix = before + prefix, suffix = suffix + after. */
static qp_status wrap_around(qp_tokenizer *t, qp_ids *before, const qp_ids *after, qp_err *err)
{
    for (size_t i = 0; i < t->prefix.n; i++) QP_TRY(qp_ids_push(before, t->prefix.ids[i], err));
    qp_ids old = t->prefix;
    t->prefix = *before;
    *before = old;
    for (size_t i = 0; i < after->n; i++) QP_TRY(qp_ids_push(&t->suffix, after->ids[i], err));
    return QP_OK;
}

static qp_status push_special(qp_tokenizer *t, const json_t *tokens, const json_t *item, qp_ids *list, qp_err *err)
{
    const json_t *name = json_object_get(item, "id"), *ids, *v;
    size_t i;
    if (!json_is_string(name)) return bad(t, err, "SpecialToken without an id");
    ids = json_object_get(json_object_get(tokens, json_string_value(name)), "ids");
    if (!json_is_array(ids))
        return qp_fail(err, QP_EFORMAT, "%s: post_processor: special token \"%.60s\" has no ids", t->name,
                       json_string_value(name));
    json_array_foreach(ids, i, v) QP_TRY(push_id(t, list, v, err));
    return QP_OK;
}

static qp_status load_template(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    const json_t *single = json_object_get(spec, "single"), *item, *v;
    qp_ids side[2] = {{0}, {0}};
    unsigned n_text = 0;
    size_t i;
    qp_status st = QP_OK;
    if (!json_is_array(single)) return bad(t, err, "TemplateProcessing: \"single\" is not a list");
    json_array_foreach(single, i, item)
    {
        if ((v = json_object_get(item, "SpecialToken")))
            st = push_special(t, json_object_get(spec, "special_tokens"), v, &side[n_text > 0], err);
        else if ((v = json_object_get(item, "Sequence")))
            n_text++;
        else
            st = bad(t, err, "TemplateProcessing: item is neither SpecialToken nor Sequence");
        if (st != QP_OK) goto out;
    }
    if (n_text != 1)
        st = qp_fail(err, QP_EUNSUPPORTED, "%s: post_processor: template uses the text %u times, wanted 1", t->name,
                     n_text);
    else
        st = wrap_around(t, &side[0], &side[1], err);
out:
    qp_ids_deinit(&side[0]);
    qp_ids_deinit(&side[1]);
    return st;
}

/* BertProcessing and RobertaProcessing: "cls" and "sep" are [text, id]. */
static qp_status load_cls_sep(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    qp_ids before = {0}, after = {0};
    qp_status st = push_id(t, &before, json_array_get(json_object_get(spec, "cls"), 1), err);
    if (st == QP_OK) st = push_id(t, &after, json_array_get(json_object_get(spec, "sep"), 1), err);
    if (st == QP_OK) st = wrap_around(t, &before, &after, err);
    qp_ids_deinit(&before);
    qp_ids_deinit(&after);
    return st;
}

qp_status qp_tok_post_load(qp_tokenizer *t, const json_t *spec, qp_err *err)
{
    const char *type = "";
    if (!spec || json_is_null(spec)) return QP_OK;
    if (!json_is_object(spec)) return bad(t, err, "not an object");
    QP_TRY(qp_json_get_str(spec, "type", "", &type, t->name, err));
    if (strcmp(type, "ByteLevel") == 0) return QP_OK; /* changes offsets only */
    if (strcmp(type, "TemplateProcessing") == 0) return load_template(t, spec, err);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return load_cls_sep(t, spec, err);
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(spec, "processors"), *item;
        size_t i;
        if (!json_is_array(list)) return bad(t, err, "\"processors\" is not a list");
        json_array_foreach(list, i, item) QP_TRY(qp_tok_post_load(t, item, err));
        return QP_OK;
    }
    return qp_fail(err, QP_EUNSUPPORTED, "%s: post_processor \"%.60s\" is not supported", t->name, type);
}

/* Text of bos_token / eos_token: a string or an object with "content". */
static qp_status named_token(const qp_tokenizer *t, const json_t *config, const char *key, qp_ids *list, qp_err *err)
{
    const json_t *v = json_object_get(config, key);
    if (json_is_object(v)) v = json_object_get(v, "content");
    if (!json_is_string(v)) return qp_fail(err, QP_EFORMAT, "%s: tokenizer config: no \"%s\"", t->name, key);
    int32_t id = qp_tokenizer_id(t, json_string_value(v), json_string_length(v));
    if (id < 0)
        return qp_fail(err, QP_EFORMAT, "%s: tokenizer config: %s \"%.60s\" is not a token", t->name, key,
                       json_string_value(v));
    return qp_ids_push(list, id, err);
}

/* The classes whose loader builds the template from these two flags, whatever tokenizer.json says. */
static bool rebuilds_template(const char *class_name)
{
    static const char *const names[] = {"LlamaTokenizer",     "LlamaTokenizerFast",     "CodeLlamaTokenizer",
                                        "GemmaTokenizer",     "CodeLlamaTokenizerFast", "GemmaTokenizerFast",
                                        "CohereTokenizerFast"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(class_name, names[i]) == 0) return true;
    return false;
}

qp_status qp_tok_post_config(qp_tokenizer *t, const json_t *config, qp_err *err)
{
    const char *class_name = "";
    const json_t *add_bos = json_object_get(config, "add_bos_token"),
                 *add_eos = json_object_get(config, "add_eos_token");
    QP_TRY(qp_json_get_str(config, "tokenizer_class", "", &class_name, t->name, err));
    if (!rebuilds_template(class_name) || (!json_is_boolean(add_bos) && !json_is_boolean(add_eos))) return QP_OK;
    t->prefix.n = t->suffix.n = 0;
    if (!json_is_false(add_bos)) QP_TRY(named_token(t, config, "bos_token", &t->prefix, err)); /* absent means true */
    if (json_is_true(add_eos)) QP_TRY(named_token(t, config, "eos_token", &t->suffix, err));
    return QP_OK;
}
