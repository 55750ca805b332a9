/* command.h - run one command without a shell: argument vector, deadline, output kept apart and bounded. Blocking.
 *
 * The child gets /dev/null on standard input, default signals and a process group of its own, which is killed at the deadline.
 */
#ifndef EXA_SLURM_COMMAND_H
#define EXA_SLURM_COMMAND_H

#include "base/buf.h"
#include "base/err.h"

enum { COMMAND_MAX_OUTPUT = 8 << 20 };

struct command {
    const char *const *argv; /* NULL-terminated; argv[0] is looked up in PATH */
    const char *const
        *env; /* "NAME=value" put over our own environment, NULL-terminated; may be NULL */
    uint64_t timeout_us;
};
struct command_result {
    struct buf out, err; /* cut at COMMAND_MAX_OUTPUT */
    int status;          /* exit status; 128 + signal */
};

/* A command that ran is a success whatever its status. ERR_TIMEOUT, ERR_SYS (not found: named). */
int command_run(struct command_result *r, const struct command *c, struct err *e);
void command_result_fini(struct command_result *r);
/* Standard error as one line for a message; "" when there was none. */
const char *command_complaint(struct command_result *r, char *out, size_t cap);

#endif
