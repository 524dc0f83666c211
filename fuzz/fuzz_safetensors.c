/* Fuzz target: one safetensors file in memory. What opens is read to the last byte. */
#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qp_err err;
    qp_checkpoint *c;
    if (qp_checkpoint_open_bytes(&c, data, size, "fuzz", &err) != QP_OK) return 0;
    unsigned sum = 0;
    for (size_t i = 0; i < qp_checkpoint_n_tensors(c); i++) {
        const qp_tensor *t = qp_checkpoint_at(c, i);
        char shape[64];
        qp_tensor_shape_str(t, shape, sizeof shape);
        for (size_t j = 0; j < t->n_bytes; j++) sum += ((const unsigned char *)t->data)[j];
        if (!qp_checkpoint_find(c, t->name)) __builtin_trap();
    }
    qp_checkpoint_close(c);
    volatile unsigned sink = sum;
    (void)sink;
    return 0;
}
