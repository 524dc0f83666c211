/* Tiny tokenizer.json texts that use every part of the pipeline. */
#ifndef QP_TESTS_TOKENIZER_TINY_H
#define QP_TESTS_TOKENIZER_TINY_H

/* clang-format off */
#define ADDED(id, text, flags) "{\"id\":" #id ",\"content\":\"" text "\"," flags "}"
#define SPECIAL "\"special\":true,\"normalized\":false"

/* Byte-level, a pattern that goes through PCRE2, a normalizer of several steps, a template. */
static const char tiny_bytes[] = "{\"version\":\"1.0\",\"added_tokens\":[" ADDED(
    9,
    "<s>", SPECIAL) "," ADDED(10, "<Ab>",
                              "\"special\":false,\"normalized\":true,\"lstrip\":true,\"rstrip\":true,\"single_word\":"
                              "true") "],"
                                      "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{"
                                      "\"type\":\"Lowercase\"},"
                                      "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"z+\"},\"content\":\"a\"}]},"
                                      "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                                      "\"pattern\":{\"Regex\":\"[ab]+|c+\"},"
                                      "\"behavior\":\"MergedWithNext\",\"invert\":false},"
                                      "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}]},"
                                      "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                                      "\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
                                      "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{"
                                      "\"id\":\"<s>\",\"ids\":[9]}}},"
                                      "\"decoder\":{\"type\":\"ByteLevel\"},"
                                      "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,\"vocab\":{\"?"
                                      "\":0,\"a\":1,\"b\":2,\"c\":3,"
                                      "\"\\u0120\":4,\"ab\":5,\"\\u0120ab\":6,\"\\u00c3\":7,\"\\u00a9\":8},"
                                      "\"merges\":[\"a b\",[\"\\u0120\",\"ab\"]]}}";

/* Code points with byte tokens; Llama style. */
static const char tiny_points[] = "{\"added_tokens\":[" ADDED(
    0, "<unk>",
    SPECIAL) "],"
             "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"},"
             "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}]},"
             "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
             "\"\\u2581\"},\"content\":\" "
             "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
             "\",\"start\":1,\"stop\":0}]},"
             "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,\"fuse_unk\":true,"
             "\"vocab\":{\"<unk>\":0,\"\\u2581\":1,\"a\":2,\"b\":3,\"\\u2581a\":4,\"\\u2581ab\":5,\"<0xC3>\":6,\"<0xA9>"
             "\":7},"
             "\"merges\":[[\"\\u2581\",\"a\"],[\"\\u2581a\",\"b\"]]}}";

static const char tiny_unigram[] =
    "{\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\","
    "\"prepend_scheme\":\"always\",\"split\":true},\"decoder\":{\"type\":\"Metaspace\"},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"\\u2581\",-2.5],[\"a\",-3],[\"b\",-3.25],"
    "[\"ab\",-4],[\"\\u2581ab\",-5e0]]}}";
/* clang-format on */
#endif
