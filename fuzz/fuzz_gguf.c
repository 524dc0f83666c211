/* Fuzz target: the whole import of a GGUF file in memory, its output thrown away. */
#include "base/alloc.h"
#include "quant/gguf_import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qp_err err = {0};
    size_t live = qp_alloc_live_bytes();
    const qp_import_options options = {.f32 = size & 1};
    if (qp_gguf_import_check(data, size, &options, &err) != QP_OK && !err.msg[0]) __builtin_trap();
    if (qp_alloc_live_bytes() != live) __builtin_trap();
    return 0;
}
