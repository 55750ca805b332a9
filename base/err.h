/* err.h - one error: a code that says what the caller can do, and the sentence for the person.
 *
 * Every fallible function returns 0 or a negative `enum err_code` and takes `struct err *e` last (NULL is allowed).
 * The function that detects the fault writes the text: what failed, on which object, what was expected and found.
 */
#ifndef EXA_BASE_ERR_H
#define EXA_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

enum err_code {
    ERR_AGAIN = -1,    /* not now: try the same again later (queue full, no replica) */
    ERR_CANCELED = -2, /* given up on the caller's own wish */
    ERR_TIMEOUT = -3,  /* a deadline passed */
    ERR_PEER = -4,     /* the other side is gone */
    ERR_LIMIT = -5,    /* larger than a budget allows */
    ERR_CONFIG = -6,   /* the user's configuration or command line is wrong */
    ERR_FORMAT = -7,   /* a file or a value is not what its format says */
    ERR_PROTO = -8,    /* the other side broke the protocol */
    ERR_NOMEM = -9,    /* out of memory */
    ERR_SYS = -10,     /* the operating system refused; text has strerror */
    ERR_DEVICE = -11,  /* an accelerator failed */
    ERR_FENCED = -12,  /* an older epoch: somebody else owns this now */
};

struct err {
    int code;       /* 0: none */
    char text[512]; /* one sentence, no newline; cut, never overrun */
};

#define ERR_INIT                                                                                   \
    {                                                                                              \
        0, ""                                                                                      \
    }

/* Fill e (may be NULL) and return code. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As err_set with ": strerror(errnum)" appended; code is ERR_SYS (ERR_NOMEM for ENOMEM). */
int err_sys(struct err *e, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Put a prefix before e's text ("loading x: "); keeps and returns e->code (ERR_SYS if e is NULL or empty). */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *err_name(int code); /* "LIMIT", "TIMEOUT", …; "UNKNOWN" */
int err_http_status(int code);  /* HTTP status for a client's request that failed so */
int err_exit_code(int code);    /* 2 not ready, 3 timed out, 4 invalid, 1 else */

/* A broken invariant, never input: says where and aborts. */
#define CHECK(cond) ((cond) ? (void)0 : check_failed(#cond, __FILE__, __LINE__))
_Noreturn void check_failed(const char *cond, const char *file, int line);

#endif
