/* abort.h - Open MPI's own abort, taken over: after the detach a broken connection ends a broadcast
 * round, not this process. See docs/decisions/0003-no-abort-by-the-library.md. */
#ifndef EXA_MPI_ABORT_H
#define EXA_MPI_ABORT_H

/* From now on the library's call to abort is logged and passed over. */
void abort_disarm(void);

#endif
