/* fault.h - attempt-N/fault: what kept a rank from joining its world. It has no link to the others yet, so a file must tell them.
 *
 * Written by the rank, read by rank 0 (which gives up the start at once, instead of waiting for it until the deadline) and by
 * `exaserve run` (which tells the person). The last writer wins: one reason is enough.
 */
#ifndef EXA_SLURM_FAULT_H
#define EXA_SLURM_FAULT_H

#include "base/err.h"

enum { FAULT_HOST_BYTES = 64 };

/* why: code and text as they were detected; who ("router 1") is put before the text. */
int fault_write(const char *attempt_dir, const char *host, const char *who, const struct err *why,
                struct err *e);
/* 0: why and host are filled in. ERR_AGAIN: no rank has told of one. */
int fault_read(const char *attempt_dir, char host[FAULT_HOST_BYTES], struct err *why);

#endif
