/* quantpack: run and serve quantized large language models. The one public header.
 *
 * Plain C types and opaque handles only, usable from C++ and by foreign-function interfaces. Every function that can
 * fail returns qp_status and takes a qp_err last, which must not be NULL; on failure out-parameters are untouched and
 * err->msg names the thing, the value found and the value wanted. */
#ifndef QUANTPACK_H
#define QUANTPACK_H

#ifdef __cplusplus
extern "C" {
#endif

#define QP_VERSION "0.1.0"

typedef enum qp_status {
    QP_OK = 0,
    QP_EINVAL,       /* the caller asked for something that makes no sense */
    QP_ELIMIT,       /* a stated limit was exceeded */
    QP_EUNSUPPORTED, /* well-formed, but this build does not do it */
    QP_EIO,          /* the operating system refused */
    QP_EFORMAT,      /* bytes from outside are not what their format says */
    QP_ENOMEM,       /* memory: asked for, free, and what lowers it are in the message */
    QP_ECANCELLED,   /* the caller cancelled */
    QP_EDEVICE,      /* an accelerator failed or is missing */
    QP_EINTERNAL     /* a bug here */
} qp_status;

typedef struct {
    qp_status status;
    char msg[512];
} qp_err;

/* Short English name of a status: "ok", "invalid argument", ... Never NULL. */
const char *qp_status_name(qp_status st);

#ifdef __cplusplus
}
#endif
#endif
