/* opt.h - the command line: one table of options a sub-command feeds parsing, help and the hint for a mistyped name.
 */
#ifndef EXA_CLI_OPT_H
#define EXA_CLI_OPT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    EXIT_READY = 0,
    EXIT_NOT_READY = 2,
    EXIT_TIMED_OUT = 3,
    EXIT_INVALID = 4,
};

enum opt_kind {
    OPT_FLAG,   /* bool */
    OPT_TEXT,   /* const char *, borrowed from argv */
    OPT_UINT,   /* uint64_t, min … max */
    OPT_NUMBER, /* double, min … max */
};

struct opt {
    const char *name; /* without "--" */
    char letter;      /* 0: none */
    enum opt_kind kind;
    const char *arg; /* its name in help: "N" */
    void *value;     /* where it goes; left alone when the option is not given */
    uint64_t min, max;
    const char *help;
};

struct command {
    const char *name;
    const char *operands; /* in the usage line: "[JOB]" */
    unsigned min_operands, max_operands;
    const char *summary; /* one line for `exaserve --help` */
    const char *details; /* paragraphs for `exaserve NAME --help`, ended by a newline */
    int (*run)(int argc, char **argv);
};

enum { OPT_MAX_OPERANDS = 4, OPT_GO_ON = -1 };

/* argv[0] is the sub-command. opts is ended by a NULL name; -h and --help are added. Operands may stand anywhere; "--" ends the options.
 * OPT_GO_ON, or the exit code: help was shown (0), or the line is wrong and one sentence went to standard error (4). */
int opt_parse(const struct command *c, const struct opt *opts, int argc, char **argv,
              const char *operands[OPT_MAX_OPERANDS]);
void opt_help(const struct command *c, const struct opt *opts);

#endif
