/* say.h - what a person reads: errors, progress lines on standard error, the end of a log.
 */
#ifndef EXA_CLI_SAY_H
#define EXA_CLI_SAY_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* "exaserve NAME: text" on standard error; the exit code that belongs to the error. */
int say_error(const char *command, const struct err *e);

/* A progress line, printed when it differs from the last one. On one screen for minutes, so it begins with the time. */
struct progress_line {
    char last[640];
};
void say_progress(struct progress_line *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Bytes of the control character that s[n] begins with (C0, DEL; C1 as UTF-8, which terminals obey too); 0: it is none. */
size_t say_control(const char *s, size_t n);
/* Text that came from elsewhere, made fit for a terminal in place: control characters become blanks. Returns s. */
char *say_clean(char *s);
/* The last lines of a log file, indented, on standard error; nothing when there is none. */
void say_log_tail(const char *path, unsigned lines);
/* "3 d 2 h", "1 h 5 min", "42 s" */
const char *say_duration(uint64_t seconds, char out[32]);

#endif
