/* Limits on what comes from outside. Each is checked before anything is sized by the value. */
#ifndef QP_IO_LIMITS_H
#define QP_IO_LIMITS_H

#define QP_MAX_JSON_DEPTH 64
#define QP_MAX_JSON_BYTES ((size_t)256 << 20)
#define QP_MAX_RANK 8
#define QP_MAX_NAME_BYTES 512
#define QP_MAX_HEADER_BYTES ((size_t)256 << 20)
#define QP_MAX_SHARDS 4096
#define QP_MAX_TENSORS ((size_t)1 << 22)
#define QP_MAX_LAYERS 1024
#define QP_MAX_EXPERTS 4096
#define QP_MAX_DIM ((uint32_t)1 << 24) /* any width, head count times head size included */
#define QP_MAX_VOCAB ((uint32_t)1 << 24)
#define QP_MAX_POSITION ((uint32_t)1 << 30)
#endif
