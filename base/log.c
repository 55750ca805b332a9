/* log.c - see log.h. A line is formatted on the stack and leaves by one write, so lines of threads do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 }; /* longer lines are cut: a log line is a sentence, not a dump */

static struct {
    char role[16];
    int rank;
    enum log_level level;
} sink = {"", -1, LOG_INFO};

void log_init(const char *role, int rank)
{
    static const char *const NAMES[] = {"debug", "info", "warn", "error"};
    snprintf(sink.role, sizeof sink.role, "%s", role ? role : "");
    sink.rank = rank;
    const char *want = getenv("EXASERVE_LOG");
    for (int i = 0; want && i < 4; i++)
        if (strcmp(want, NAMES[i]) == 0)
            sink.level = (enum log_level)i;
}

int log_enabled(enum log_level level)
{
    return level >= sink.level;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    if (!log_enabled(level))
        return;
    char line[LINE_BYTES];
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    localtime_r(&ts.tv_sec, &tm);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ld %c ", ts.tv_nsec / 1000000,
                          "DIWE"[level]);
    if (sink.role[0]) {
        n += (size_t)snprintf(line + n, sizeof line - n, sink.rank >= 0 ? "%s/%d " : "%s ",
                              sink.role, sink.rank);
    }
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    va_end(ap);
    n += k < 0 ? 0 : (size_t)k < sizeof line - n - 1 ? (size_t)k : sizeof line - n - 2;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20)
            line[i] = ' '; /* one event, one line, whatever text was put in */
    line[n++] = '\n';
    ssize_t unused = write(STDERR_FILENO, line, n);
    (void)unused; /* nowhere to report it */
}
