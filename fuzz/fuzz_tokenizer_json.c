/* Any bytes as tokenizer.json: an error, or a tokenizer that encodes and decodes a short text. Bytes after a line of
 * "#config" are tokenizer_config.json. */
#include "base/alloc.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void must(bool ok)
{
    if (!ok) abort();
}

/* What comes out of encoding must decode, whole and streamed, and every id must have a token. */
static void use(const qp_tokenizer *t, const char *text, size_t n)
{
    qp_err err = {0};
    qp_ids ids = {0};
    qp_buf out = {0};
    qp_detok d = {.t = t, .skip_special = n & 1};
    if (qp_tokenizer_encode(t, text, n, true, &ids, &err) == QP_OK) {
        for (size_t i = 0; i < ids.n; i++) {
            size_t len;
            must(qp_tokenizer_token(t, ids.ids[i], &len) != NULL);
            must(qp_tokenizer_token_bytes(t, ids.ids[i], &out, &err) == QP_OK);
        }
        qp_status st = qp_tokenizer_decode(t, ids.ids, ids.n, false, &out, &err);
        must(st == QP_OK || st == QP_ELIMIT);
        for (size_t i = 0; i < ids.n && i < 64; i++) {
            st = qp_detok_push(&d, ids.ids[i], &out, &err);
            must(st == QP_OK || st == QP_ELIMIT);
        }
        qp_detok_flush(&d, &out, &err);
    }
    qp_detok_deinit(&d);
    qp_buf_deinit(&out);
    qp_ids_deinit(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char mark[] = "\n#config\n",
                      text[] = " ab<s>  \xC3\xA9\xE4\xBD\xA0 \xFF\xE2\x96\x81 a1\n\n'sAB\xCC\x81x";
    const char *json = (const char *)data, *config = NULL;
    size_t n = size, n_config = 0, live = qp_alloc_live_bytes();
    for (size_t i = 0; i + sizeof mark - 1 <= size && !config; i++) {
        if (memcmp(json + i, mark, sizeof mark - 1) != 0) continue;
        n = i;
        config = json + i + sizeof mark - 1;
        n_config = size - i - (sizeof mark - 1);
    }
    qp_err err = {0};
    qp_tokenizer *t = NULL;
    if (qp_tokenizer_parse(&t, json, n, config, n_config, "fuzz", &err) == QP_OK) {
        use(t, text, sizeof text - 1);
        use(t, json, n < 200 ? n : 200);
    } else {
        must(err.msg[0] != 0 && t == NULL);
    }
    qp_tokenizer_free(t);
    must(qp_alloc_live_bytes() == live);
    return 0;
}
