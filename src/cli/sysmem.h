/* Memory of this machine and this process. */
#ifndef QP_CLI_SYSMEM_H
#define QP_CLI_SYSMEM_H

#include <stddef.h>

/* Bytes that can still be taken: MemAvailable, or what the control group leaves when that is less; 0 when unknown. */
size_t qp_mem_available(void);

/* Resident bytes of this process; 0 when unknown. */
size_t qp_mem_resident(void);

#endif
